// Passes over one row of a softmax, for attention and for the loss.
//
// A maximum or a sum is kept in one partial result a lane: that makes it vector code, and gives it one order.
#pragma once

#include "moeloom/kernels/elementwise/vector_math.hpp"
#include "moeloom/kernels/tile/lanes.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace moeloom::softmax {

inline float maximum(const float* x, Index count) {
  Vector lanes = Vector{} - std::numeric_limits<float>::infinity();
  Index j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    Vector values;
    load(values, x + j);
    lanes = values > lanes ? values : lanes;
  }
  float largest = lanes[0];
  for (Index lane = 1; lane < kLanes; ++lane) largest = std::max(largest, lanes[lane]);
  for (; j < count; ++j) largest = std::max(largest, x[j]);
  return largest;
}

inline float sum(const float* x, Index count) {
  Vector lanes = {};
  Index j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    Vector values;
    load(values, x + j);
    lanes += values;
  }
  float total = 0.0f;
  for (Index lane = 0; lane < kLanes; ++lane) total += lanes[lane];
  for (; j < count; ++j) total += x[j];
  return total;
}

inline float dot(const float* x, const float* y, Index count) {
  Vector lanes = {};
  Index j = 0;
  for (; j + kLanes <= count; j += kLanes) {
    Vector a;
    Vector b;
    load(a, x + j);
    load(b, y + j);
    lanes += a * b;
  }
  float total = 0.0f;
  for (Index lane = 0; lane < kLanes; ++lane) total += lanes[lane];
  for (; j < count; ++j) total += x[j] * y[j];
  return total;
}

/// e^x for x <= 0 (and up to 88), vector_math::exp without what only other x need: a third fewer operations.
/// Below -87 the result stays at 1.6e-38, which no sum of a row with e^0 in it can notice.
inline float exp_of_nonpositive(float x) {
  const vector_math::Split split = vector_math::split_exp(x < -87.0f ? -87.0f : x);
  // The mantissa is about 1 and the exponent at least -126: a sum of exponent bits is the product. Without a
  // sign, so that what a diverged run has here is a wrong number and no undefined one.
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(split.mantissa) +
                              (static_cast<std::uint32_t>(split.sum_bits) << 23));
}

/// x = e^(x - shift), shift at least the largest x up to rounding.
inline void exp_shifted(float* x, Index count, float shift) {
  for (Index j = 0; j < count; ++j) x[j] = exp_of_nonpositive(x[j] - shift);
}

}  // namespace moeloom::softmax
