// LayerNorm (Ba et al. 2016) of whole rows, forward and backward.
//
// y = (x - mean) * inv_deviation * weight + bias, inv_deviation = 1 / sqrt(variance + eps), the variance that
// of the row's D elements, divided by D.
#pragma once

#include "moeloom/tensor/rows.hpp"

#include <span>

namespace moeloom {

struct LayerNormWeights {
  std::span<const float> weight;  // [D]
  std::span<const float> bias;    // [D], or empty: there is none
  float eps = 1e-5f;
};

/// x [T, D] -> y [T, D], inv_deviation [T]. y may be x, but a backward then has nothing to go by. As bf16, y
/// is rounded to nearest, ties to even.
void layernorm_forward(ConstMatrixView x, const LayerNormWeights& weights, Rows y,
                       std::span<float> inv_deviation);

struct LayerNormGradients {
  std::span<float> weight;  // [D], added to
  std::span<float> bias;    // [D], added to; empty without a bias
};

/// dy -> dx (replaced; may be dy) of the x and the inv_deviation of forward. The weights' gradients add up
/// rows in order, in chunks of kSumChunkRows, the chunks in order: the same bits on any number of threads.
void layernorm_backward(ConstMatrixView x, const LayerNormWeights& weights,
                        std::span<const float> inv_deviation, ConstMatrixView dy, MatrixView dx,
                        const LayerNormGradients& gradients);

}  // namespace moeloom
