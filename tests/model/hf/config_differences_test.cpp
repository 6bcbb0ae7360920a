// What a config.json cannot say of a model is refused where it would be written.
#include "model/hf/config/config_differences.hpp"

#include "model/hf/family_models.hpp"
#include "moeloom/base/errors.hpp"

#include <functional>

#include "support/expect_error.hpp"
#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Names = std::vector<std::string>;

/// Fields that are others once the config was written and read.
Names lost_by(const ModelConfig& config) {
  return differing_fields(config, ModelConfig::from(config.to_document(), config.ignored_keys));
}

std::string refusal_to_write(const ModelConfig& config) {
  return testing::message_of<ConfigError>([&] { config.to_document(); });
}

TEST(ConfigDifferences, AreNoneOnceAGoldenConfigWasWrittenAndRead) {
  for (const auto& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs))
    EXPECT_EQ(lost_by(ModelConfig::read(folder)), Names()) << folder;
}

TEST(ConfigDifferences, AreNoneOnceWhatHasChangedWasWritten) {
  for (const Family& family : families()) {
    if (!family.refusal.empty()) continue;
    SCOPED_TRACE(family.model_type);
    ModelConfig config = testing::family_model(family);
    config.pad_token_id = 3;
    if (family.in_both_versions) config.rope_theta = 2e4;
    config.initializer_range = 0.3;
    config.vocab_size = 90;
    config.tie_word_embeddings = !config.tie_word_embeddings;
    if (family.moe && family.model_type != "phimoe") config.num_experts_per_tok = 1;  // which chooses two
    if (family.moe && family.moe->scaling) config.routed_scaling_factor = 2.5;
    EXPECT_EQ(lost_by(config), Names());
    config.pad_token_id.reset();
    EXPECT_EQ(lost_by(config), Names());
  }
}

TEST(ConfigDifferences, AreNoneOfNewModelsWhoseFamilyHasTheKeys) {
  ModelConfig granite = testing::tiny_config();
  granite.model_type = "granitemoe";
  granite.mlp_only_layers = {};
  EXPECT_EQ(lost_by(granite), Names()) << "scores as of any model";
  granite.residual_multiplier = 0.22;
  granite.embedding_multiplier = 12;
  granite.logits_scaling = 3;
  granite.score_scale = 0.1;
  EXPECT_EQ(lost_by(granite), Names());
  EXPECT_EQ(lost_by(testing::deepseek_config()), Names());
  ModelConfig one_projection = testing::deepseek_config();
  one_projection.q_lora_rank = 0;
  EXPECT_EQ(lost_by(one_projection), Names());
  EXPECT_FALSE(one_projection.to_document().has("q_lora_rank")) << "null, as HF has it";
  ModelConfig padded = testing::tiny_config();
  padded.pad_token_id = 7;
  EXPECT_EQ(lost_by(padded), Names());
}

TEST(ConfigDifferences, NameWhatAConfigJsonCannotSay) {
  const struct {
    std::function<void(ModelConfig&)> change;
    std::string field;
  } cases[] = {
      {[](ModelConfig& c) {
         c.windows = {4, 4, 4};
       },
       "windows"},
      {[](ModelConfig& c) {
         c.chunks = {4, 4, 0};
       },
       "chunks"},
      {[](ModelConfig& c) { c.rope_scaling = LinearScaling{4.0}; }, "rope_scaling"},
      {[](ModelConfig& c) {
         c.layer_rope_theta = {1e4, 0, 1e4};
       },
       "layer_rope_theta"},
      {[](ModelConfig& c) {
         c.rope_layers = {1, 0, 1};
       },
       "rope_layers"},
      {[](ModelConfig& c) { c.sparse_layers = {2}; }, "layers with experts"},
      {[](ModelConfig& c) { c.score_scale = 0.5; }, "score_scale"},
      {[](ModelConfig& c) { c.residual_multiplier = 0.5; }, "residual_multiplier"},
      {[](ModelConfig& c) { c.routed_scaling_factor = 2; }, "routed_scaling_factor"},
      {[](ModelConfig& c) {
         c.layer_heads = {4, 2, 4};
       },
       "layer_heads"},
  };
  for (const auto& [change, field] : cases) {
    ModelConfig config = testing::tiny_config();
    change(config);
    const std::string expected = field + " would be read as another";
    EXPECT_NE(refusal_to_write(config).find(expected), std::string::npos) << field;
    ModelConfig read = ModelConfig::from(testing::tiny_config().to_document());
    change(read);
    EXPECT_NE(refusal_to_write(read).find(expected), std::string::npos) << field << " of a file's model";
  }
}

TEST(ConfigDifferences, DoNotCountWhatSaysTheSame) {
  ModelConfig config = testing::tiny_config();
  config.windows = {0, 0, 0};
  config.layer_heads = {4, 4, 4};
  config.rope_layers = {1, 1, 1};
  config.layer_rope_theta = {1e4, 1e4, 1e4};
  config.layer_top_k = {2, 2, 2};
  config.value_dim = config.head_dim;
  EXPECT_EQ(differing_fields(config, testing::tiny_config()), Names());
}

TEST(WriteConfig, CallsTheFactorOfChosenExpertsAsTheFamilyDoes) {
  for (const auto& [type, key] :
       {std::pair("afmoe", "route_scale"), std::pair("hy_v3", "router_scaling_factor"),
        std::pair("laguna", "moe_routed_scaling_factor"),
        std::pair("deepseek_v3", "routed_scaling_factor")}) {
    ModelConfig config = testing::model(type);
    config.routed_scaling_factor = 2.25;
    const Document written = config.to_document();
    EXPECT_EQ(written.number(key), 2.25) << type;
    EXPECT_EQ(ModelConfig::from(written).routed_scaling_factor, 2.25) << type;
  }
}

}  // namespace
}  // namespace moeloom
