// Passes over one row of a softmax, for attention and for the loss.
//
// A maximum or a sum is kept in kSoftmaxLanes partial results, so that it becomes vector code and has one
// order.
#pragma once

#include "moeloom/kernels/vector_math.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace moeloom::softmax {

inline constexpr Index kSoftmaxLanes = 32;

inline float maximum(const float* x, Index count) {
  std::array<float, kSoftmaxLanes> lanes;
  lanes.fill(-std::numeric_limits<float>::infinity());
  Index j = 0;
  for (; j + kSoftmaxLanes <= count; j += kSoftmaxLanes) {
    for (std::size_t l = 0; l < lanes.size(); ++l) {
      const float value = x[j + static_cast<Index>(l)];
      lanes[l] = value > lanes[l] ? value : lanes[l];
    }
  }
  float largest = *std::max_element(lanes.begin(), lanes.end());
  for (; j < count; ++j) largest = std::max(largest, x[j]);
  return largest;
}

inline float sum(const float* x, Index count) {
  std::array<float, kSoftmaxLanes> lanes{};
  Index j = 0;
  for (; j + kSoftmaxLanes <= count; j += kSoftmaxLanes) {
    for (std::size_t l = 0; l < lanes.size(); ++l) lanes[l] += x[j + static_cast<Index>(l)];
  }
  float total = 0.0f;
  for (const float lane : lanes) total += lane;
  for (; j < count; ++j) total += x[j];
  return total;
}

/// x = e^(x - shift).
inline void exp_shifted(float* x, Index count, float shift) {
  for (Index j = 0; j < count; ++j) x[j] = vector_math::exp(x[j] - shift);
}

}  // namespace moeloom::softmax
