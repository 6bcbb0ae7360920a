#include "plan/cost/mixer_cost.hpp"

#include "kernels/delta_rule.hpp"
#include "moeloom/model/hf/config.hpp"

#include <array>

#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

DeltaNetSpec net() {
  return {.prefix = "",
          .hidden_size = 24,
          .key_heads = 2,
          .value_heads = 4,
          .key_dim = 8,
          .value_dim = 6,
          .taps = 4,
          .norm = {}};
}

TEST(MixerCost, OfAttentionIsItsProductsThreeTimesAndItsPairs) {
  const MixerSpec mixer = testing::tiny_config().layer(0).mixer;  // D = 24, 4 heads of 8, 2 for keys
  EXPECT_EQ(mixer_product_flops(mixer, 10), 6 * 10 * (24 * (32 + 16 + 16) + 32 * 24));
  EXPECT_EQ(mixing_flops(mixer, 10, 5), 10 * 3 * (8 + 6) * 32);
  EXPECT_EQ(mixer_elementwise_bytes(mixer, 10), 4 * 10 * (10 * 24 + 9 * (32 + 16)));
  AttentionSpec windowed = std::get<AttentionSpec>(mixer);
  windowed.window = 2;
  EXPECT_EQ(mixing_flops(windowed, 10, 5), 10 * 2 * (8 + 6) * 32);
}

TEST(MixerCost, OfADeltaNetGrowsWithTheTokensAndNotWithTheirSquare) {
  const MixerSpec mixer = net();  // q, k of 16, v and z of 24, b and a of 4
  EXPECT_EQ(mixer_product_flops(mixer, 10), 6 * 10 * 24 * ((16 + 16 + 24 + 24 + 8) + 24));
  const std::array offsets = {Index{0}, Index{512}};
  const DeltaRuleShape rule{2, 4, 8, 6, offsets};
  EXPECT_EQ(mixing_flops(mixer, 1024, 512),
            2 * (delta_rule_forward_flops(rule) + delta_rule_backward_flops(rule)));
  EXPECT_EQ(mixing_flops(mixer, 1024, 512), mixing_flops(mixer, 1024, 64));
  EXPECT_EQ(mixing_flops(mixer, 0, 0), 0);
  EXPECT_EQ(mixer_elementwise_bytes(mixer, 10), 4 * 10 * (10 * 24 + 5 * 56 + 8 * 24));
}

TEST(MixerCost, OfAShortConvolutionIsItsTwoProducts) {
  const MixerSpec mixer = ShortConvSpec{.prefix = "", .hidden_size = 24, .taps = 3};
  EXPECT_EQ(mixer_product_flops(mixer, 10), 6 * 10 * (24 * 72 + 24 * 24));
  EXPECT_EQ(mixing_flops(mixer, 10, 5), 0);
  EXPECT_EQ(mixer_elementwise_bytes(mixer, 10), 4 * 10 * (10 * 24 + 11 * 24));
}

}  // namespace
}  // namespace moeloom
