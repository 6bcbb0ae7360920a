// Weights of a folder in the forms that strangers keep them: plain, FP8 with scales, MXFP4.
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/stored/slice_io.hpp"
#include "model/hf/stored/stored_tensor.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <bit>

#include "fuzz/json_words.hpp"
#include "fuzz/memory_file.hpp"
#include "fuzz/target.hpp"
#include "support/files.hpp"
#include "support/small_model.hpp"

namespace moeloom::fuzz {
namespace {

/// A part of the input up to a byte 0xFF, which is taken off.
std::string_view take_part(std::string_view& input) {
  const std::size_t cut = std::min(input.find('\xff'), input.size());
  const std::string_view part = input.substr(0, cut);
  input.remove_prefix(std::min(cut + 1, input.size()));
  return part;
}

/// Of a small model with the quantization_config that the part is; none where it is empty.
ModelConfig config_with(std::string_view quantization) {
  Document document = testing::tiny_config().to_document();
  if (quantization.find("mxfp4") != std::string_view::npos) {
    ModelConfig transposed = testing::biased_config();
    transposed.hidden_size = 32;  // whole blocks
    document = transposed.to_document();
    document.set("sliding_window", 8);
  }
  if (!quantization.empty())
    document.set("quantization_config", Document::parse(quantization, "quantization_config"));
  return ModelConfig::from(document);
}

/// Whole, and an element for itself.
void read_both_ways(const StoredTensor& tensor, Index elements) {
  std::vector<float> whole(static_cast<std::size_t>(elements));
  tensor.read(0, whole);
  for (Index i = 0; i < elements; i += 1 + elements / 16) {
    float one = 0;
    tensor.read(i, {&one, 1});
    expect(
        std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(whole[static_cast<std::size_t>(i)]),
        "an element is another one where it is read alone");
  }
}

/// What of the model's weights is there.
void read_weights(const SafetensorsFolder& folder, const ModelConfig& config) {
  check_weights(folder, config, {"*"});
  for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
    for (const HfSlice& slice : spec.slices)
      if (folder.has(slice.name) || folder.has(slice.name + "_blocks")) {
        Matrix rows(slice.rows, spec.cols);
        read_slice(folder, config.stored, slice, rows);
      }
}

/// quantization_config, the header of a safetensors file, and its data, a byte 0xFF between two.
void run_stored_weights(std::string_view input) {
  static MemoryFolder folder;
  const ModelConfig config = config_with(take_part(input));
  const std::string header(take_part(input));
  folder.hold("model.safetensors",
              testing::bytes_of_number(std::uint64_t{header.size()}) + header + std::string(input));
  const SafetensorsFolder tensors(folder.path());
  for (const std::string& name : tensors.names())
    try_it([&] {
      const TensorInfo& info = tensors.info(name);
      if (is_fp8(info.dtype) && fp8_complaint(tensors, config.stored, name).empty())
        expect(has_scales(tensors, config.stored, name), "a tensor in FP8 without scales");
      read_both_ways(StoredTensor(tensors, config.stored, name), info.elements());
    });
  read_weights(tensors, config);
}

std::string tensor(const std::string& name, const char* type, const char* shape, Index begin, Index end) {
  return "\"" + name + R"(":{"dtype":")" + type + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

std::vector<std::string> stored_weights_seeds() {
  const std::string q = "model.layers.0.self_attn.q_proj.weight",
                    e = "model.layers.0.mlp.experts.gate_up_proj";
  const std::string blocks = R"({"quant_method":"fp8","weight_block_size":[16,9]})";
  const std::string file = "\xff{" + tensor(q, "F8_E4M3", "[32,24]", 0, 768) + "," +
                           tensor(q + "_scale_inv", "F32", "[2,3]", 768, 792) + "}\xff" +
                           std::string(792, '8');
  const std::string stack = "\xff{" + tensor(e, "F8_E5M2", "[2,4,3]", 0, 24) + "," +
                            tensor(e + "_scale", "BF16", "[2,1,1]", 24, 28) + "}\xff" + std::string(28, '8');
  const std::string rows = "\xff{" + tensor(q, "F8_E4M3", "[32,24]", 0, 768) + "," +
                           tensor(q + "_scale", "BF16", "[32,1]", 768, 832) + "}\xff" + std::string(832, '8');
  const std::string packed = "\xff{" + tensor(e + "_blocks", "U8", "[4,40,1,16]", 0, 2560) + "," +
                             tensor(e + "_scales", "U8", "[4,40,1]", 2560, 2720) + "}\xff" +
                             std::string(2720, '8');
  return {
      blocks + file, blocks + stack, file, R"({"quant_method":"mxfp4"})" + packed,
      R"({"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"group_0":{"targets":)"
      R"(["Linear"],"weights":{"num_bits":8,"type":"float","strategy":"channel","symmetric":true}}}})" +
          rows};
}

}  // namespace

std::vector<Target> weights_targets() {
  return {{"stored_weights", run_stored_weights, stored_weights_seeds,
           with_json({"\"quant_method\"",
                      "\"fp8\"",
                      "\"weight_block_size\"",
                      "\"strategy\"",
                      "\"block\"",
                      "\"tensor\"",
                      "\"channel\"",
                      "\"block_structure\"",
                      "\"dtype\"",
                      "\"shape\"",
                      "\"F8_E4M3\"",
                      "\"F8_E8M0\"",
                      "\"F32\"",
                      "\"U8\"",
                      "_scale_inv",
                      "_scale",
                      "_blocks",
                      "_scales",
                      "[1]",
                      "[0,0]",
                      "\xff"})}};
}

}  // namespace moeloom::fuzz
