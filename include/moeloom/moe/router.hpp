// The router: which experts a token visits and with what weight, and the losses that keep their load even.
//
// probabilities = softmax over all experts in fp32; the k largest are chosen (the lower index on a tie);
// their probabilities, divided by their sum if norm_topk_prob, are the weights. Gradients flow through the
// division and the softmax; the choice is constant.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

struct RouterSettings {
  Index num_experts = 0;
  Index top_k = 0;
  bool norm_topk_prob = true;
};

struct Routing {
  Matrix probabilities;                // [T, E]
  std::vector<float> log_sum_exp;      // [T]
  std::vector<std::int32_t> topk_idx;  // [T, K], by falling probability
  std::vector<float> topk_weights;     // [T, K]
  Index tokens() const { return probabilities.rows(); }
};

/// logits [T, E] -> routing, its memory reused. Throws ShapeError for logits of another width and for top_k
/// outside [1, E]. Logits are not searched for NaN: a row with one gets NaN throughout and k different
/// experts, and the NaN goes on to the loss, where a step is judged.
void route(ConstMatrixView logits, const RouterSettings& settings, Routing& routing);

/// Sums over tokens and sparse layers that the router losses are made of. HF pools the layers: N = layers *
/// tokens.
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

/// d(loss)/d(statistics) of one real token: a constant a probability of expert e, and a factor of
/// log_sum_exp.
struct RouterLossGradient {
  std::vector<float> d_probability;  // [E]; empty: no router losses
  float d_log_sum_exp = 0;           // times log_sum_exp
};
RouterLossGradient router_loss_gradient(const RouterStatistics& global, double aux_scale, double z_scale);

/// d_topk_weights [T, K] and the router losses' part -> d_logits [T, E].
void route_backward(const Routing& routing, const RouterSettings& settings,
                    std::span<const float> d_topk_weights, const RouterLossGradient& losses,
                    std::span<const std::uint8_t> is_real, MatrixView d_logits);

}  // namespace moeloom
