// Cross entropy of one row of logits, and its gradient in their place.
#pragma once

#include "kernels/elementwise/soft_cap.hpp"
#include "model/loss.hpp"
#include "tensor/ordered_sum.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "parts/softmax.hpp"

namespace moeloom {

/// Partial sums of a row in fp32 before they go on in double: a vocabulary of 150,000 would lose digits.
inline constexpr Index kSummedInFloat = 1024;

/// logits -> e^(logits - their maximum).
struct Exponentials {
  float maximum;
  double sum;
};
inline Exponentials exponentiate(float* logits, Index count) {
  Exponentials row{softmax::maximum(logits, count), 0.0};
  for (Index begin = 0; begin < count; begin += kSummedInFloat) {
    const Index part = std::min(kSummedInFloat, count - begin);
    softmax::exp_shifted(logits + begin, part, row.maximum);
    row.sum += static_cast<double>(ordered_sum(logits + begin, part));
  }
  return row;
}

/// -log p(target); the logits are overwritten.
inline double row_loss(float* logits, Index count, std::int32_t target) {
  const float of_target = logits[target];
  const Exponentials row = exponentiate(logits, count);
  return std::log(row.sum) + static_cast<double>(row.maximum) - static_cast<double>(of_target);
}

/// The same, and logits -> scale * (p - [target]).
inline double row_loss_backward(float* logits, Index count, std::int32_t target, float scale) {
  const float of_target = logits[target];
  const Exponentials row = exponentiate(logits, count);
  const auto factor = static_cast<float>(static_cast<double>(scale) / row.sum);
  for (Index j = 0; j < count; ++j) logits[j] *= factor;
  logits[target] -= scale;
  return std::log(row.sum) + static_cast<double>(row.maximum) - static_cast<double>(of_target);
}

/// The same of logits that have a cap, or none; a thread's own.
class RowBackward {
 public:
  RowBackward(const HeadWeights& head, float scale)
      : cap_(head.logit_cap), scale_(scale * head.logit_scale) {}

  double operator()(float* logits, Index count, std::int32_t target) {
    if (cap_ == 0) return row_loss_backward(logits, count, target, scale_);
    capped_.assign(logits, logits + count);
    const double loss = row_loss_backward(logits, count, target, scale_);
    soft_cap_backward(cap_, capped_.data(), logits, count);
    return loss;
  }

 private:
  float cap_;
  float scale_;
  std::vector<float> capped_;  // [V]
};

}  // namespace moeloom
