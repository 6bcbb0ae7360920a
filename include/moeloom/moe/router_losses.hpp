// The losses that keep the experts' load even and the router's logits small, and their gradient.
//
// Both are made of sums over all tokens, so they are collected a layer at a time, summed over ranks once, and
// their gradient is a constant an expert that each token's backward adds.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/moe/router.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

/// How sure a layer's router was, and what it left out, over the tokens of a step.
struct RoutingReport {
  double entropy = 0;        // nats, of a token's scores divided by their sum; mean over tokens
  double dropped_share = 0;  // of the slots that chose an expert, those that capacity left without a row
};

/// Sums over tokens and sparse layers that the router losses are made of. HF pools the layers: N = layers *
/// tokens. The losses are softmax routers': sigmoid scores are counted by expert alone, and both are 0.
struct RouterStatistics {
  explicit RouterStatistics(Index num_experts = 0);
  /// Adds one layer's tokens, in token order; is_real [T] or empty leaves out padding.
  void add(const Routing& routing, Index top_k, std::span<const std::uint8_t> is_real);
  /// Becomes the sum over ranks, along the tree. Collective.
  void sum_over(const Communicator& world);
  /// E * sum_e (tokens of e / N) * (mean probability of e); k at perfect balance (HF
  /// load_balancing_loss_func).
  double aux_loss() const;
  /// mean of log_sum_exp^2 (ST-MoE, Zoph et al. 2022, eq. 5).
  double z_loss() const;

  std::vector<std::int64_t> tokens_per_expert;  // [E]
  std::vector<double> probability_sum;          // [E]
  double squared_log_sum_exp = 0;
  std::int64_t tokens = 0;  // N
};

RouterLossGradient router_loss_gradient(const RouterStatistics& global, double aux_scale, double z_scale);

}  // namespace moeloom
