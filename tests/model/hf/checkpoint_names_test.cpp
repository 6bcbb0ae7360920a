#include "moeloom/model/hf/checkpoint_names.hpp"

#include "model/hf/family.hpp"
#include "model/hf/weights/weights_io.hpp"

#include <algorithm>

#include "family_models.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

CheckpointNames names_in(const std::string& model_type, const std::vector<std::string>& tensors) {
  return checkpoint_names(*find_family(model_type), tensors);
}

TEST(CheckpointNames, OfAFolderThatDoesNotSayAreTheFamilysOwn) {
  for (const std::string type : {"qwen3_moe", "mixtral", "qwen3_vl_moe"}) {
    const Family& family = *find_family(type);
    const CheckpointNames names = names_in(type, {});
    EXPECT_EQ(names.prefix.body, family.prefix.body) << type;
    EXPECT_EQ(names.prefix.head, family.prefix.head) << type;
    EXPECT_EQ(names.block, family.moe->block) << type;
    EXPECT_EQ(names.experts, family.moe->layout) << type;
  }
}

TEST(CheckpointNames, OfADenseFamilyAskNothingOfExperts) {
  EXPECT_EQ(names_in("llama", {"model.layers.0.block_sparse_moe.experts.0.w1.weight"}).block, "mlp");
}

TEST(CheckpointNames, ExpertsAreListedOrStackedAsTheirTensorsAreCalled) {
  const std::string mlp = "model.layers.0.mlp.experts.";
  EXPECT_EQ(names_in("qwen3_moe", {mlp + "0.gate_proj.weight"}).experts, ExpertLayout::kList);
  EXPECT_EQ(names_in("qwen3_moe", {mlp + "gate_up_proj"}).experts, ExpertLayout::kStacked);
  // Of a family that keeps them transposed the same name means that: shapes may not tell the two apart.
  EXPECT_EQ(names_in("qwen3_vl_moe", {mlp + "gate_up_proj"}).experts, ExpertLayout::kStackedTransposed);
  EXPECT_EQ(names_in("qwen3_vl_moe", {mlp + "0.gate_proj.weight"}).experts, ExpertLayout::kList);
}

TEST(CheckpointNames, TheBlockIsTheOneThatExpertsAreIn) {
  EXPECT_EQ(names_in("mixtral", {"model.layers.0.mlp.experts.gate_up_proj"}).block, "mlp");
  EXPECT_EQ(names_in("qwen3_moe", {"model.layers.0.block_sparse_moe.experts.0.w1.weight"}).block,
            "block_sparse_moe");
}

/// save_pretrained(save_original_format=False) of transformers 5.15.
TEST(CheckpointNames, OfAFileAsInMemoryAreThoseOfTheClass) {
  const struct {
    std::string type, block;
    std::vector<std::string> names;
  } cases[] = {
      {"granitemoe", "block_sparse_moe.", {"experts.gate_up_proj", "experts.down_proj", "router.weight"}},
      {"phimoe", "mlp.", {"experts.gate_up_proj", "experts.down_proj", "router.weight"}},
      {"ernie4_5_moe",
       "mlp.",
       {"experts.gate_up_proj", "experts.down_proj", "gate.weight",
        "gate.moe_statics.e_score_correction_bias"}},
      {"axk1", "mlp.", {"experts.gate_up_proj", "gate.weight", "post_mlp_layernorm.weight"}},
      {"exaone_moe", "mlp.", {"experts.gate_up_proj", "gate.weight", "gate.e_score_correction_bias"}},
      {"hy_v3",
       "mlp.",
       {"experts.gate_up_proj", "gate.weight", "e_score_correction_bias", "shared_experts.gate_proj.weight",
        "shared_experts.down_proj.weight"}},
      {"laguna",
       "mlp.",
       {"experts.gate_up_proj", "gate.weight", "gate.e_score_correction_bias",
        "shared_experts.up_proj.weight"}},
      {"granitemoe",
       "block_sparse_moe.",
       {"input_linear.weight", "output_linear.weight", "router.layer.weight"}},
  };
  for (const auto& c : cases) {
    std::vector<std::string> tensors;
    for (const std::string& name : c.names) tensors.push_back("model.layers.1." + c.block + name);
    ModelConfig config = testing::model(c.type);
    config.names = names_in(c.type, tensors);
    EXPECT_EQ(config.names.experts, ExpertLayout::kStacked) << c.type;
    const std::vector<TensorSpec> specs = tensor_specs(config);
    for (const std::string& name : tensors)
      EXPECT_EQ(std::ranges::count(specs, name, &TensorSpec::name), 1) << name;
  }
}

TEST(CheckpointNames, OfAFileAsInMemoryAreAlsoThoseOfAttention) {
  const std::string sinks = "model.layers.1.self_attn.sinks";
  ModelConfig config = testing::model("mimo_v2_flash");
  EXPECT_EQ(std::ranges::count(tensor_specs(config), sinks, &TensorSpec::name), 0);
  config.names = names_in("mimo_v2_flash", {sinks});
  EXPECT_TRUE(config.names.as_in_memory);
  EXPECT_EQ(std::ranges::count(tensor_specs(config), sinks, &TensorSpec::name), 1);
}

TEST(CheckpointNames, InMemoryAndInAFileLeadToEachOther) {
  for (const Family& family : families()) {
    if (!family.moe) continue;
    const std::vector<MemoryName> names = memory_names(family, family.moe->block);
    for (const auto& [of_file, of_memory] : names) {
      EXPECT_EQ(in_memory(names, of_file + ".x"), of_memory + ".x") << family.model_type;
      EXPECT_EQ(in_file(names, of_memory + ".x"), of_file + ".x") << family.model_type;
      EXPECT_EQ(in_memory(names, of_file + "_other"), of_file + "_other") << "whole words only";
    }
  }
}

TEST(CheckpointNames, ThePrefixIsWhatStandsBeforeTheOnlyEmbeddings) {
  const std::vector<std::string> nested = {"thinker.model.embed_tokens.weight", "thinker.lm_head.weight"};
  EXPECT_EQ(names_in("qwen3_moe", nested).prefix.body, "thinker.model.");
  EXPECT_EQ(names_in("qwen3_moe", nested).prefix.head, "thinker.lm_head.weight");
  // Two of them do not say which is the text model's, unless one is the family's own.
  const std::vector<std::string> two = {"a.embed_tokens.weight", "b.embed_tokens.weight"};
  EXPECT_EQ(names_in("qwen3_moe", two).prefix.body, "model.");
  const std::vector<std::string> own = {"a.embed_tokens.weight", "model.embed_tokens.weight"};
  EXPECT_EQ(names_in("qwen3_moe", own).prefix.body, "model.");
}

}  // namespace
}  // namespace moeloom
