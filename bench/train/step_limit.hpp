// What a step of one rank cannot be faster than: of each of its parts, floating-point operations at the peak
// or bytes at a copy's speed, whichever takes longer, added up.
//
// Counts are the least that the arithmetic needs, not what the program does: a weight is read for its two
// products and its gradient written once, an update reads a gradient and moves a weight and both moments.
// Beside adapters weights have no gradient: two products of three, and two bytes of three.
#pragma once

#include "moeloom/base/phase.hpp"
#include "plan/cost/step_cost.hpp"

#include <algorithm>
#include <vector>

namespace moeloom::bench {

struct StepPart {
  Phase phase;
  double flops = 0, bytes = 0;
  bool in_dtype = false;  // products that may run in the dtype of the path; others are in fp32
};

/// One micro-batch on a rank by itself: sequences that fill `tokens`, experts all here.
inline std::vector<StepPart> parts_of_step(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                                           Index tokens, Index sequence_length) {
  const auto real = [](Index n) { return static_cast<double>(n); };
  const Trained trained = trained_elements(specs);
  const double a_row = sizeof(float) * real(config.hidden_size), stream = a_row * real(tokens);
  const double slots = real(tokens * config.num_experts_per_tok);
  const double made = share_made(specs, Placement::kWorld),
               made_experts = share_made(specs, Placement::kExperts);
  const auto of_weights = [&](double flops) { return 12 * flops / (6 * real(tokens)); };
  std::vector<StepPart> parts;
  for (Index i = 0; i < config.num_hidden_layers; ++i) {
    const LayerSpec layer = config.layer(i);
    const double mixer = made * mixer_product_flops(layer.mixer, tokens);
    const double mlp = made * mlp_product_flops(layer, tokens);
    parts.push_back({Phase::kAttention, mixer, of_weights(mixer), true});
    parts.push_back({Phase::kAttention, mixing_flops(layer.mixer, tokens, sequence_length), 0});
    parts.push_back({Phase::kAttention, 0, mixer_elementwise_bytes(layer.mixer, tokens)});
    parts.push_back({Phase::kDense, mlp, of_weights(mlp), true});
    parts.push_back({Phase::kDense, 0, dense_elementwise_bytes(layer, tokens)});
    if (!layer.moe) continue;
    const double wide = real(config.moe_intermediate_size);
    const double experts = made_experts * 3 * real(config.num_experts * config.hidden_size) * wide;
    const double router = made * real(config.num_experts * config.hidden_size);
    parts.push_back({Phase::kRouter, 6 * real(tokens) * router, 12 * router});
    parts.push_back({Phase::kDispatch, 0, 2 * (stream + slots * a_row)});
    parts.push_back(
        {Phase::kExperts, made_experts * 18 * slots * real(config.hidden_size) * wide, 12 * experts, true});
    parts.push_back({Phase::kExperts, 0, 9 * sizeof(float) * slots * wide});
    parts.push_back({Phase::kCombine, 0, 2 * (stream + slots * a_row)});
  }
  const double head = made * head_flops(config, tokens);
  parts.push_back({Phase::kLoss, head, of_weights(head), true});
  for (const ParameterSpec& spec : specs) {
    if (!spec.adapter) continue;
    const bool of_experts = spec.placement == Placement::kExperts;
    const double elements = real(spec.rows * spec.cols);
    const double flops = 6 * (of_experts ? slots / real(spec.total_groups) : real(tokens)) * elements;
    parts.push_back({of_experts ? Phase::kExperts : Phase::kAttention, flops, 12 * elements, true});
  }
  parts.push_back({Phase::kDense, 0, 5 * stream});  // the final norm
  parts.push_back({Phase::kEmbed, 0, 5 * stream});
  parts.push_back({Phase::kReduce, 0, sizeof(float) * (trained.dense + trained.experts)});
  parts.push_back({Phase::kOptimizer, 0, 7 * sizeof(float) * (trained.dense + trained.experts)});
  return parts;
}

/// Of this rank, measured around a step.
struct StepRates {
  double peak = 0;       // operations a second of products in the path's dtype
  double fp32_peak = 0;  // of the others
  double copy = 0;       // bytes a second, read and written
};

inline PhaseSeconds limits_of(const std::vector<StepPart>& parts, const StepRates& rates) {
  PhaseSeconds seconds{};
  for (const StepPart& part : parts)
    seconds[static_cast<std::size_t>(part.phase)] +=
        std::max(part.flops / (part.in_dtype ? rates.peak : rates.fp32_peak), part.bytes / rates.copy);
  return seconds;
}

}  // namespace moeloom::bench
