// Passes over one row of a softmax, for attention and for the loss.
#pragma once

#include "kernels/elementwise/vector_math.hpp"
#include "tensor/ordered_sum.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace moeloom::softmax {

/// Of no order: the largest is the same number in any.
inline float maximum(const float* x, Index count) {
  Lanes lanes = broadcast(-std::numeric_limits<float>::infinity());
  Index j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    const Lanes values = load(x + j);
    lanes = values > lanes ? values : lanes;
  }
  float largest = lanes[0];
  for (Index lane = 1; lane < kLanes; ++lane) largest = std::max(largest, lanes[lane]);
  for (; j < count; ++j) largest = std::max(largest, x[j]);
  return largest;
}

/// e^x for x <= 0 (and up to 88), vector_math::exp without what only other x need: a third fewer operations.
/// Below -87 the result stays at 1.6e-38, which no sum of a row with e^0 in it can notice.
inline float exp_of_nonpositive(float x) {
  const vector_math::Split split = vector_math::split_exp(x < -87.0f ? -87.0f : x);
  // The mantissa is about 1 and the exponent at least -126: a sum of exponent bits is the product.
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(split.mantissa) + (split.sum_bits << 23));
}

/// x = e^(x - shift), shift at least the largest x up to rounding.
inline void exp_shifted(float* x, Index count, float shift) {
  for (Index j = 0; j < count; ++j) x[j] = exp_of_nonpositive(x[j] - shift);
}

}  // namespace moeloom::softmax
