// What the chosen experts of a token weigh: values of them, a divisor, a scale; and back.
#pragma once

#include "moe/routing/router.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moeloom {

template <typename Real>
Real sigmoid(Real x) {
  return 1 / (1 + std::exp(-x));
}

template <typename Real>
Real divisor(const Division& divide, Real sum) {
  switch (divide.by) {
    case DivideBy::kNothing:
      return 1;
    case DivideBy::kSum:
      return sum == 0 ? 1 : sum;  // chosen by somebody else, experts may all score 0
    case DivideBy::kSumPlus:
      return sum + static_cast<Real>(divide.number);
    case DivideBy::kSumAtLeast:
      return std::max(sum, static_cast<Real>(divide.number));
  }
  return 1;
}

inline float scale_of(const RouterSettings& settings, Index expert) {
  if (settings.expert_scale.empty()) return settings.scaling_factor;
  return settings.scaling_factor * settings.expert_scale[at(expert)];
}

/// A softmax over the logits near that of chosen[j], without those chosen before -> near [E]; returns its
/// value there.
template <typename Real>
Real softmax_of_near(const RouterSettings& settings, const Real* logits, std::span<const std::int32_t> chosen,
                     std::size_t j, float* near) {
  const Real top = logits[chosen[j]];
  const auto is_far = [&](Index e) {
    if (std::ranges::find(chosen.first(j), e) != chosen.begin() + static_cast<Index>(j)) return true;
    return (top - logits[e]) / std::max(std::abs(logits[e]), top) > static_cast<Real>(settings.nearness);
  };
  Real largest = top, sum = 0;
  for (Index e = 0; e < settings.num_experts; ++e)
    if (logits[e] > largest && !is_far(e)) largest = logits[e];  // chosen by somebody else
  for (Index e = 0; e < settings.num_experts; ++e) {
    const Real power = is_far(e) ? Real{0} : std::exp(logits[e] - largest);
    near[e] = static_cast<float>(power);
    sum += power;
  }
  for (Index e = 0; e < settings.num_experts; ++e)
    near[e] = static_cast<float>(static_cast<Real>(near[e]) / sum);
  return std::exp(top - largest) / sum;
}

/// v [K] of one token; 0 where nobody was chosen. near [K, E] of kSoftmaxOfNear.
template <typename Real>
void value_chosen(const RouterSettings& settings, const Real* logits, const Real* scores,
                  std::span<const std::int32_t> chosen, Real* values, float* near) {
  const auto of_each = [&](auto value) {
    for (std::size_t j = 0; j < chosen.size(); ++j)
      values[j] = chosen[j] == kNoExpert ? Real{0} : value(chosen[j]);
  };
  if (settings.weigh_by == WeighBy::kScore) {
    of_each([&](Index e) { return scores[e]; });
  } else if (settings.weigh_by == WeighBy::kSigmoidOfLogit) {
    of_each([&](Index e) { return sigmoid(logits[e]); });
  } else if (settings.weigh_by == WeighBy::kSoftmaxOfNear) {
    for (std::size_t j = 0; j < chosen.size(); ++j, near += settings.num_experts)
      values[j] = chosen[j] == kNoExpert ? Real{0} : softmax_of_near(settings, logits, chosen, j, near);
  } else {
    Real largest = -std::numeric_limits<Real>::infinity(), sum = 0;
    for (const std::int32_t e : chosen)
      if (e != kNoExpert) largest = std::max(largest, logits[e]);
    of_each([&](Index e) { return std::exp(logits[e] - largest); });
    for (std::size_t j = 0; j < chosen.size(); ++j) sum += values[j];
    if (sum > 0)
      for (std::size_t j = 0; j < chosen.size(); ++j) values[j] /= sum;
  }
  // A logit that is NaN may not be among the chosen.
  if (std::isnan(scores[0])) std::fill_n(values, chosen.size(), scores[0]);
}

/// One token's places in a routing.
struct TokenSlots {
  float* values;   // [K]
  float* weights;  // [K]
  float* near;     // [K, E], or null
};
inline TokenSlots slots_of(Routing& routing, Index token) {
  const Index first = token * routing.top_k;
  return {routing.topk_values.data() + first, routing.topk_weights.data() + first,
          routing.near.rows() == 0 ? nullptr : routing.near.row(first)};
}

/// values [K] and weights [K] of one token.
template <typename Real>
void weigh_token(const RouterSettings& settings, const Real* logits, const Real* scores,
                 std::span<const std::int32_t> chosen, Real* values, const TokenSlots& slots) {
  value_chosen(settings, logits, scores, chosen, values, slots.near);
  Real sum = 0;
  for (std::size_t j = 0; j < chosen.size(); ++j) sum += values[j];
  const Real divided = divisor(settings.divide, sum);
  for (std::size_t j = 0; j < chosen.size(); ++j) {
    const bool is_chosen = chosen[j] != kNoExpert;
    slots.values[j] = static_cast<float>(values[j]);
    slots.weights[j] =
        is_chosen ? static_cast<float>(values[j] / divided * static_cast<Real>(scale_of(settings, chosen[j])))
                  : 0.0f;
  }
}

/// d: gradient of the softmax's value at `chosen`, times that value. d_logits [E] += near's.
inline void softmax_of_near_backward(const float* near, Index n, Index chosen, float d, float* d_logits) {
  for (Index e = 0; e < n; ++e) d_logits[e] += ((e == chosen ? 1.0f : 0.0f) - near[e]) * d;
}

/// w_j -> v_j -> what was weighed: d_scores [E] += for scores, d_logits [E] += for logits.
inline void weigh_backward(const Routing& routing, const RouterSettings& settings, Index token,
                           const float* d_weights, float* d_scores, float* d_logits) {
  const Index k = routing.top_k;
  const std::int32_t* chosen = routing.topk_idx.data() + token * k;
  const float* values = routing.topk_values.data() + token * k;
  float sum = 0;
  for (Index j = 0; j < k; ++j) sum += values[j];
  const float divided = divisor(settings.divide, sum);
  const bool is_constant = settings.divide.by == DivideBy::kNothing ||
                           (settings.divide.by == DivideBy::kSumAtLeast && sum < settings.divide.number);
  const auto d_value = [&](Index j) { return scale_of(settings, chosen[j]) * d_weights[j]; };
  // v_j / sum has the gradient (d_j - sum_i u_i d_i) / sum.
  float along = 0;
  for (Index j = 0; j < k && !is_constant; ++j)
    if (chosen[j] != kNoExpert) along += d_value(j) * (values[j] / divided);
  const auto d_raw = [&](Index j) { return (d_value(j) - along) / divided; };
  float mean = 0;  // of a softmax over the chosen
  for (Index j = 0; j < k && settings.weigh_by == WeighBy::kSoftmaxOfChosen; ++j)
    if (chosen[j] != kNoExpert) mean += values[j] * d_raw(j);
  for (Index j = 0; j < k; ++j) {
    if (chosen[j] == kNoExpert) continue;
    if (settings.weigh_by == WeighBy::kScore) d_scores[chosen[j]] += d_raw(j);
    if (settings.weigh_by == WeighBy::kSoftmaxOfChosen) d_logits[chosen[j]] += values[j] * (d_raw(j) - mean);
    if (settings.weigh_by == WeighBy::kSigmoidOfLogit)
      d_logits[chosen[j]] += values[j] * (1 - values[j]) * d_raw(j);
    if (settings.weigh_by == WeighBy::kSoftmaxOfNear)
      softmax_of_near_backward(routing.near.view().row(token * k + j), settings.num_experts, chosen[j],
                               values[j] * d_raw(j), d_logits);
  }
}

}  // namespace moeloom
