// A layer's router with its weight: tokens in, a routing out, and back. Whatever changes the choice while a
// model trains is here: experts that choose, capacity, choices that are given.
#pragma once

#include "kernels/low_rank.hpp"
#include "moe/routing/router.hpp"
#include "moeloom/comm/communicator.hpp"
#include "moeloom/moe/routing/routing_settings.hpp"
#include "moeloom/tensor/exact_sums.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace moeloom {

/// Views of a router's own parameters. Gradients without rows: frozen, not computed.
struct RouterWeights {
  MatrixView weight;  // [E, D]
  MatrixView d_weight;
  ExactSums* sums = nullptr;         // that the gradients are leaves of
  std::span<const float> bias = {};  // [E] of the logits, or empty
  std::span<float> d_bias = {};
  std::vector<LowRank> adapter = {};
  std::span<float> d_expert_scale = {};  // [E] of the settings' expert_scale
};

/// The tokens that are routed, and whose.
struct RoutedTokens {
  const Communicator* world = nullptr;  // of all ranks; null: this rank alone
  bool training = false;
  std::span<const std::uint8_t> is_real = {};    // [T] or empty
  std::span<const std::int32_t> input_ids = {};  // [T]; for a hash router
  std::optional<std::span<const std::int32_t>> given_topk_idx =
      {};  // [T, K] or empty: choices that replace the router's
  Index tokens_per_sequence = 0;
};

class RouterLayer {
 public:
  /// `layer` tells layers' hashes apart.
  RouterLayer(RouterWeights weights, RouterSettings settings, Index layer,
              const RouterTraining& training = {}, RouterDType dtype = RouterDType::kFp32);

  /// hidden_states [T, D] -> logits [T, E] = x W^T + bias, capped, in fp32, and the routing. Collective over
  /// tokens.world in training with expert choice or capacity. Throws ShapeError for a hash router without
  /// ids.
  void forward(const RoutedTokens& tokens, ConstMatrixView hidden_states, Matrix& logits, Routing& routing);
  /// d_hidden_states is added to, as the gradients of weight, bias and expert scales. logits become their
  /// gradient, of what they were before the cap.
  void backward(const RoutedTokens& tokens, ConstMatrixView hidden_states, const Routing& routing,
                std::span<const float> d_topk_weights, const RouterLossGradient& losses, Matrix& logits,
                MatrixView d_hidden_states);

  const RouterSettings& settings() const { return settings_; }

 private:
  template <typename Real>
  void choose(const RoutedTokens& tokens, BasicView<const Real> logits, Routing& routing) const;
  /// The gradients are added to, or to their exact sums.
  void add_weight_grads(ConstMatrixView d_logits, ConstMatrixView x, RowKeys keys) const;
  void add_scale_grads(const Routing& routing, std::span<const float> d_topk_weights) const;
  void add_adapter(ConstMatrixView x, MatrixView logits, RowKeys keys) const;
  void add_adapter_input_grad(ConstMatrixView d_logits, MatrixView d_x, RowKeys keys) const;
  /// [T] of what the logits are made of; empty where the adapter drops no inputs.
  std::vector<std::uint64_t> keys_of(ConstMatrixView x) const;

  RouterWeights weights_;
  RouterSettings settings_;
  Index layer_;
  RouterTraining training_;
  RouterDType dtype_;
  std::vector<double> logits_f64_;  // [T, E]
};

/// The most rows of an expert over all ranks, of `tokens` in all: ceil(factor * tokens * K / E), at least 1.
Index expert_capacity(double factor, Index tokens, Index top_k, Index num_experts);

}  // namespace moeloom
