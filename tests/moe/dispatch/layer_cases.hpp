// Layers whose bits must not depend on how their rows travel.
#pragma once

#include <cmath>

#include "moe_block.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {

/// All that a block computes; gradients are those of both runs, because they are added to.
inline void expect_same_bits(const Block& got, const Block& expected, const std::string& where) {
  const auto same = [](const Matrix& a, const Matrix& b) {
    return std::ranges::equal(a.view().flat(), b.view().flat());
  };
  EXPECT_TRUE(same(got.output, expected.output)) << where << "output";
  EXPECT_TRUE(same(got.d_hidden, expected.d_hidden)) << where << "d_hidden";
  EXPECT_TRUE(same(got.gradients().router, expected.gradients().router)) << where << "router gradient";
  EXPECT_TRUE(same(got.gradients().gate_up, expected.gradients().gate_up)) << where << "gate_up gradient";
  EXPECT_TRUE(same(got.gradients().down, expected.gradients().down)) << where << "down gradient";
  EXPECT_TRUE(same(got.gradients().shared_gate_up, expected.gradients().shared_gate_up))
      << where << "shared expert's gradient";
}

struct LayerCase {
  const char* name;
  Index tokens;  // of all ranks, dealt in stretches: the last ranks may get none
  Index experts, top_k;
  bool hot = false;  // every token chooses expert 0
};

/// Hidden states that are positive, so that a positive row of the router is chosen by all.
inline Matrix hidden_of(const LayerCase& c, Index cols) {
  Matrix hidden = random_matrix(c.tokens, cols, 61);
  if (c.hot)
    for (float& x : hidden.view().flat()) x = std::abs(x);
  return hidden;
}

inline BlockWeights weights_of(const LayerCase& c, const RandomBlock& shape) {
  BlockWeights weights = shape.weights(c.experts, 60);
  if (c.hot) fill(weights.router.view().rows_from(0, 1), 3);
  return weights;
}

inline std::vector<LayerCase> layer_cases() {
  return {{"even", 64, 8, 2},        {"uneven", 601, 8, 3},           {"few tokens", 2, 8, 2},
          {"no token", 0, 8, 2},     {"hot expert", 300, 8, 2, true}, {"experts do not divide", 90, 11, 4},
          {"every expert", 40, 8, 8}};
}

}  // namespace moeloom::testing
