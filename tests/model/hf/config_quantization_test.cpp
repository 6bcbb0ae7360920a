// What quantization_config may say, where, and what is written of it.
#include "moeloom/base/errors.hpp"
#include "moeloom/model/hf/config.hpp"

#include "hf/family_models.hpp"
#include "support/expect_error.hpp"
#include <gtest/gtest.h>

namespace moeloom::config_quantization_test {
namespace {

std::string with(const std::string& quantization) {
  return "\"quantization_config\": {" + quantization + "}";
}

std::string compressed(const std::string& weights, const std::string& more = "") {
  return with(R"("quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"],
    "quantization_status": "compressed", "kv_cache_scheme": null, "global_compression_ratio": 1.3, )" +
              more +
              R"("config_groups": {"group_0": {"targets": ["Linear"], "input_activations": {"num_bits": 8},
    "output_activations": null, "weights": {"num_bits": 8, "type": "float", "symmetric": true, "dynamic": false,
    "actorder": null, "group_size": null, "observer": "minmax", "observer_kwargs": {}, )" +
              weights + "}}}");
}

StoredForm form(const std::string& more, const std::string& type = "qwen3_moe") {
  return testing::model(type, more).stored;
}

std::string refusal(const std::string& more) {
  return testing::message_of<ConfigError>([&] { testing::model("qwen3_moe", more); });
}

TEST(Quantization, OfFp8SaysBlocksOrOneScaleATensor) {
  const StoredForm blocks{.as = StoredAs::kFp8, .block = {128, 128}};
  EXPECT_EQ(form(with(R"("quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3",
    "weight_block_size": [128, 128], "scale_fmt": "ue8m0", "modules_to_not_convert": ["lm_head"])")),
            blocks);
  for (const std::string type : {"deepseek_v3", "kimi_k2", "minimax_m2", "llama", "gpt_oss", "glm4_moe"})
    EXPECT_EQ(form(with(R"("quant_method": "fp8", "weight_block_size": [128, 128], "ignored_layers": ["a"])"),
                   type),
              blocks);
  EXPECT_EQ(form(with(R"("quant_method": "fp8", "weight_block_size": [64, 32])")).block,
            (std::array<Index, 2>{64, 32}));
  EXPECT_EQ(form(with(R"("quant_method": "fp8")")),
            (StoredForm{.as = StoredAs::kFp8, .block = {128, 128}, .of_tensors = true}));
  EXPECT_EQ(form(with(R"("quant_method": "fp8", "weight_block_size": null)")),
            (StoredForm{.as = StoredAs::kFp8, .of_tensors = true}));
}

TEST(Quantization, OfCompressedTensorsSaysBlocksRowsOrTensors) {
  EXPECT_EQ(form(compressed(R"("strategy": "block", "block_structure": [128, 64])")),
            (StoredForm{.as = StoredAs::kFp8, .block = {128, 64}}));
  EXPECT_EQ(form(compressed(R"("strategy": "channel")")),
            (StoredForm{.as = StoredAs::kFp8, .of_rows = true}));
  EXPECT_EQ(
      form(compressed(R"("strategy": "tensor", "block_structure": null)",
                      R"("sparsity_config": {"format": "dense"}, "transform_config": {}, "version": "1", )")),
      (StoredForm{.as = StoredAs::kFp8, .of_tensors = true}));
  EXPECT_EQ(form(with(R"("quant_method": "compressed-tensors", "format": "naive-quantized",
    "config_groups": {"a": {"weights": null}})")),
            StoredForm());
}

TEST(Quantization, MayStandAroundTheTextModelOrInIt) {
  const auto outer = [](const std::string& around, const std::string& inside) {
    return ModelConfig::from(Document::parse(
        R"({"model_type": "qwen3_vl_moe", )" + (around.empty() ? "" : around + ", ") +
            R"("text_config": {"model_type": "qwen3_vl_moe_text", )" + (inside.empty() ? "" : inside + ", ") +
            testing::kSizes + testing::needs("qwen3_vl_moe") + "}}",
        "test"));
  };
  const std::string said = with(R"("quant_method": "fp8", "weight_block_size": [64, 32])");
  for (const ModelConfig& config : {outer(said, ""), outer("", said), outer(said, said)}) {
    EXPECT_EQ(config.stored.block, (std::array<Index, 2>{64, 32}));
    for (const Document& written : {config.to_document(), config.updated_source()}) {
      EXPECT_FALSE(written.has("quantization_config"));
      EXPECT_FALSE(written.object("text_config").has("quantization_config"));
    }
  }
  const std::string text =
      testing::message_of<ConfigError>([&] { outer(said, with(R"("quant_method": "fp8")")); });
  EXPECT_NE(text.find("quantization_config says other than"), std::string::npos) << text;
}

TEST(Quantization, IsRefusedByNameWithAWayOut) {
  const std::string fp8 = R"("quant_method": "fp8", )", block = R"("strategy": "block", )";
  const struct {
    std::string more, expected;
  } cases[] = {
      {with(R"("quant_method": "gptq", "bits": 4)"),
       R"(quant_method = "gptq" is not supported; known: fp8, )"},
      {with(R"("quant_method": "awq")"), "save the model in bf16 where it runs"},
      {with(R"("quant_method": "bitsandbytes")"), R"(quant_method = "bitsandbytes")"},
      {with(R"("bits": 4)"), R"(quantization_config.quant_method = "" is not supported)"},
      {with(fp8 + R"("weight_block_size": [128])"), "weight_block_size must be two numbers above 0"},
      {with(fp8 + R"("weight_block_size": [128, 0])"), "weight_block_size must be two numbers above 0"},
      {with(fp8 + R"("rotated": true)"), "unknown keys: quantization_config.rotated"},
      {compressed(R"("strategy": "group")"), R"(strategy = "group" is not supported; known: block, channel)"},
      {compressed(block + R"("block_structure": null)"), "block_structure must be two numbers above 0"},
      {compressed(R"("strategy": "channel", "scaled_twice": true)"), "weights.scaled_twice"},
      {compressed(R"("strategy": "channel")", R"("transform_config": {"config_groups": {}}, )"),
       "transform_config must be null"},
      {compressed(R"("strategy": "channel")", R"("sparsity_config": {"format": "sparse-24-bitmask"}, )"),
       R"(sparsity_config.format = "sparse-24-bitmask" is not supported; known: dense)"},
      {with(R"("quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0":
        {"weights": {"num_bits": 4, "type": "int", "strategy": "channel"}}})"),
       R"(format = "pack-quantized" is not supported; known: float-quantized, naive-quantized)"},
      {with(R"("quant_method": "compressed-tensors", "config_groups": {"group_0":
        {"format": "nvfp4-pack-quantized", "weights": {"num_bits": 4, "type": "float", "strategy": "channel"}}})"),
       R"(weights.type = "float" with num_bits = 4 is not supported; known: float with 8)"},
      {with(R"("quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"type": "float",
        "strategy": "block", "block_structure": [128, 128]}}, "b": {"weights": {"type": "float",
        "strategy": "block", "block_structure": [64, 64]}}})"),
       "block_structure differs between groups"},
      {with(R"("quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"type": "float",
        "symmetric": false, "strategy": "tensor"}}})"),
       "symmetric = false is not supported"},
  };
  for (const auto& c : cases) {
    const std::string text = refusal(c.more);
    EXPECT_NE(text.find(c.expected), std::string::npos) << c.more << " gave: " << text;
  }
}

}  // namespace
}  // namespace moeloom::config_quantization_test
