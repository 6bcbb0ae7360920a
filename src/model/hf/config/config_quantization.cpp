#include "hf/config/config_quantization.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {
namespace {

const std::string kKey = "quantization_config";
const FixedKey kNotQuantizedByMlx = {"quantization", {}, "weights here are fp32, bf16 or fp16, or in FP8"};
constexpr const char* kWayOut =
    "; save the model in bf16 where it runs, as with transformers' dequantize() and save_pretrained()";

/// Of FP8: what is converted when the model runs, and how; weights say for themselves which of them are FP8.
const std::vector<std::string> kOfRunning = {"activation_scheme", "activation_scale_ub",
                                             "dequantize",        "fmt",
                                             "ignored_layers",    "is_checkpoint_fp8_serialized",
                                             "kv_cache_scheme",   "modules_to_not_convert",
                                             "quant_method",      "scale_fmt"};
/// Of compressed-tensors: who wrote it, which modules it is about, and what is done to activations.
const std::vector<std::string> kOfCompression = {"global_compression_ratio", "ignore",
                                                 "kv_cache_scheme",          "quant_method",
                                                 "quantization_status",      "version"};
const std::vector<std::string> kOfGroup = {"targets", "input_activations", "output_activations"};
const std::vector<std::string> kOfWeights = {"actorder",        "group_size",  "observer",
                                             "observer_kwargs", "scale_dtype", "zp_dtype"};

void refuse(ConfigReader& reader, const std::string& key, const std::string& found,
            const std::string& known) {
  reader.refuse(key + " = " + found + " is not supported; known: " + known + kWayOut);
}

std::string quoted(const std::string& text) {
  return '"' + text + '"';
}

void read_block(ConfigReader& reader, const std::string& key, StoredForm& form) {
  const std::vector<Index> sizes = reader.integers(key);
  if (sizes.size() != 2 || std::ranges::min(sizes) < 1)
    return reader.refuse(key + " must be two numbers above 0: rows and columns that share a scale");
  const std::array<Index, 2> block = {sizes[0], sizes[1]};
  if (form.block[0] > 0 && form.block != block)
    return reader.refuse(key + " differs between groups; weights here have blocks of one size");
  form.block = block;
}

/// As transformers' FineGrainedFP8Config.
StoredForm read_fp8(ConfigReader& reader) {
  StoredForm form{.as = StoredAs::kFp8};
  if (reader.has("weight_block_size"))
    read_block(reader, "weight_block_size", form);
  else
    form.of_tensors = true;
  if (!reader.stated("weight_block_size")) form.block = {128, 128};
  reader.skip(kOfRunning);
  return form;
}

void check_format(ConfigReader& reader) {
  constexpr const char* kKnown = "float-quantized, naive-quantized";
  if (!reader.has("format")) return;
  const std::string format = reader.text_or("format", "");
  if (format != "float-quantized" && format != "naive-quantized")
    refuse(reader, "format", quoted(format), kKnown);
}

void read_strategy(ConfigReader& weights, StoredForm& form) {
  const std::string strategy = weights.has("strategy") ? weights.text_or("strategy", "") : "tensor";
  weights.skip({"block_structure"});
  if (strategy == "tensor")
    form.of_tensors = true;
  else if (strategy == "channel")
    form.of_rows = true;
  else if (strategy == "block")
    read_block(weights, "block_structure", form);
  else
    refuse(weights, "strategy", quoted(strategy), "block, channel, tensor");
}

void read_group(ConfigReader group, StoredForm& form) {
  group.skip(kOfGroup);
  check_format(group);
  if (group.has("weights")) {
    ConfigReader weights = group.object("weights");
    const Index bits = weights.integer_or("num_bits", 8);
    const std::string type = weights.text_or("type", "int");
    if (bits != 8 || type != "float")
      refuse(weights, "type", quoted(type) + " with num_bits = " + std::to_string(bits), "float with 8");
    if (!weights.boolean_or("symmetric", true)) refuse(weights, "symmetric", "false", "true");
    if (weights.boolean_or("dynamic", false)) refuse(weights, "dynamic", "true", "false");
    read_strategy(weights, form);
    weights.skip(kOfWeights);
    weights.refuse_the_rest();
  }
  group.refuse_the_rest();
}

void read_sparsity(ConfigReader& reader) {
  if (!reader.has("sparsity_config")) return;
  ConfigReader sparsity = reader.object("sparsity_config");
  const std::string format = sparsity.text_or("format", "dense");
  if (format != "dense") refuse(sparsity, "format", quoted(format), "dense");
}

/// As compressed-tensors writes it.
StoredForm read_compressed(ConfigReader& reader) {
  StoredForm form{.as = StoredAs::kFp8};
  check_format(reader);
  read_sparsity(reader);
  reader.none("transform_config", "weights here are not rotated");
  ConfigReader groups = reader.object("config_groups");
  for (const std::string& key : groups.keys()) read_group(groups.object(key), form);
  reader.skip(kOfCompression);
  if (form.block[0] == 0 && !form.of_rows && !form.of_tensors)
    form.as = StoredAs::kPlain;  // only activations are
  return form;
}

StoredForm read_form(ConfigReader& reader, const Family& family) {
  const bool has_mxfp4 = family.moe && family.moe->transposed;  // the only experts that it has an order for
  const std::string method = reader.text_or("quant_method", "");
  if (method == "mxfp4" && has_mxfp4) return {.as = StoredAs::kMxfp4};
  StoredForm form;
  if (method == "fp8")
    form = read_fp8(reader);
  else if (method == "compressed-tensors")
    form = read_compressed(reader);
  else {
    const std::string known = std::string("fp8, compressed-tensors") + (has_mxfp4 ? ", mxfp4" : "");
    refuse(reader, "quant_method", quoted(method), known);
    return form;
  }
  reader.refuse_the_rest();
  return form;
}

}  // namespace

void read_quantization(ConfigReader& reader, const Family& family, StoredForm& form) {
  reader.fixed(kNotQuantizedByMlx);
  if (!reader.has(kKey)) return;
  ConfigReader quantization = reader.object(kKey);
  const StoredForm found = read_form(quantization, family);
  if (form.as != StoredAs::kPlain && form != found)
    reader.refuse(kKey + " says other than that of the object around it");
  form = found;
}

}  // namespace moeloom
