#include "plan/cost/step_flops.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// D = 24, F = 16, K = 2 of E = 8; a head's width 8, 3 of queries over 1 of keys and values.
ModelConfig small_model() {
  ModelConfig config;
  config.hidden_size = 24, config.moe_intermediate_size = 16, config.intermediate_size = 40;
  config.num_experts = 8, config.num_experts_per_tok = 2, config.num_hidden_layers = 3;
  config.num_attention_heads = 3, config.num_key_value_heads = 1, config.head_dim = 8;
  config.vocab_size = 256;
  return config;
}

TEST(StepFlops, OfASparseLayerAreItsExpertsAndItsRouter) {
  EXPECT_EQ(moe_product_flops(small_model(), 10), 10 * (18 * 2 * 24 * 16 + 6 * 8 * 24));
}

TEST(StepFlops, OfAStepAreOfAllLayersAndTheHeadAndGrowWithTokensOnly) {
  const ModelConfig config = small_model();
  ModelConfig fewer = config;
  fewer.num_hidden_layers = 2;
  const double layer = step_flops(config, 64, 8) - step_flops(fewer, 64, 8);
  const double projections = 6 * 64 * (24 * (24 + 8 + 8) + 24 * 24);
  EXPECT_GT(layer, projections + moe_product_flops(config, 64)) << "and the mixing";
  EXPECT_DOUBLE_EQ(step_flops(config, 64, 8) - 3 * layer, 6.0 * 64 * 256 * 24) << "the head";
  EXPECT_DOUBLE_EQ(step_flops(config, 128, 8), 2 * step_flops(config, 64, 8));
  EXPECT_GT(step_flops(config, 64, 16), step_flops(config, 64, 8)) << "attention of longer sequences";
}

TEST(StepFlops, ADenseLayerHasItsMlpInsteadOfExperts) {
  ModelConfig dense = small_model();
  dense.mlp_only_layers = {1};
  EXPECT_DOUBLE_EQ(step_flops(small_model(), 10, 8) - step_flops(dense, 10, 8),
                   moe_product_flops(dense, 10) - 10.0 * 18 * 40 * 24);
}

}  // namespace
}  // namespace moeloom
