// One sparse block: a router, the experts that it chooses, and the shared expert of the families that have
// one, forward and backward.
#pragma once

#include "moe/routed_experts.hpp"
#include "moe/routing/router_losses.hpp"
#include "moeloom/moe/routing/routing_settings.hpp"

#include <optional>
#include <span>

namespace moeloom {

struct MoeWeights {
  MatrixView router;    // [E, D]
  MatrixView d_router;  // without rows: frozen, not computed
  ExpertShard experts;
  std::optional<SharedExpertWeights> shared = std::nullopt;
  ExactSums* sums = nullptr;                // that the router's gradients are leaves of
  std::span<const float> router_bias = {};  // [E], or empty
  std::span<float> d_router_bias = {};      // empty: frozen, not computed
  std::vector<LowRank> router_adapter = {};
  std::span<float> d_expert_scale = {};  // of RouterSettings::expert_scale; empty: frozen, not computed
  float output_scale = 1;                // of what experts and the shared one give together
};

/// What a block reads, [T, D] each: its experts and its router; the same, or not (Gemma4).
struct MoeInput {
  ConstMatrixView experts;
  ConstMatrixView router;
};
/// Gradients of a MoeInput whose two are not the same.
struct MoeInputGradient {
  MatrixView experts;
  MatrixView router;
};

class MoeLayer {
 public:
  /// `layer`: its number among the decoder's; RouterStatistics have more layers than that.
  MoeLayer(MoeWeights weights, RouterSettings router, Index layer = 0, const RoutingSettings& routing = {});

  /// hidden_states [T, D] -> the outputs of the chosen experts and the shared one, added to `output` [T, D]
  /// (the residual stream). Adds the layer to `statistics`. Collective over ep, as
  /// RouterLayer::forward(), and with a row budget over tokens.world.
  void forward(const MoeContext& context, const MoeInput& input, MatrixView output,
               RouterStatistics& statistics);
  void forward(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output,
               RouterStatistics& statistics) {
    forward(context, {hidden_states, hidden_states}, output, statistics);
  }
  /// d_output [T, D] -> d_hidden_states [T, D], replaced. The router's and the shared expert's gradients
  /// are added to, the experts' are added to or written. Collective over ep.
  void backward(const MoeContext& context, ConstMatrixView hidden_states,
                const RouterLossGradient& router_losses, ConstMatrixView d_output,
                MatrixView d_hidden_states);
  /// The same where the router read something else: both gradients are replaced.
  void backward(const MoeContext& context, const MoeInput& input, const RouterLossGradient& router_losses,
                ConstMatrixView d_output, const MoeInputGradient& d_input);

  /// Of the last forward. backward() turns the logits [T, E] into their gradient.
  const Routing& routing() const { return routing_; }
  const Matrix& router_logits() const { return router_logits_; }
  const RoutedExperts& experts() const { return experts_; }
  /// Kept from forward to backward, without the experts' activations.
  static double bytes_of(const RouterSettings& router, const TripShape& trip) {
    return rows_bytes(trip.tokens, {router.num_experts}) + Routing::bytes_of(router, trip.tokens) +
           DispatchPlan::bytes_of(trip);
  }

 private:
  ChosenExperts chosen() const { return {routing_.sent_idx(), routing_.topk_weights, routing_.top_k}; }
  /// hidden_states -> what experts and the shared one give, added to `output`.
  void add_experts(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output);
  /// d_output -> d_hidden_states, replaced; returns d_topk_weights.
  std::span<const float> backward_experts(const MoeContext& context, ConstMatrixView hidden_states,
                                          ConstMatrixView d_output, MatrixView d_hidden_states);
  void backward_router(const MoeContext& context, ConstMatrixView input,
                       std::span<const float> d_topk_weights, const RouterLossGradient& router_losses,
                       MatrixView d_input);
  void forward_shared(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output);
  void backward_shared(const MoeContext& context, ConstMatrixView hidden_states, ConstMatrixView d_output,
                       MatrixView d_hidden_states);

  Index layer_;
  RouterLayer router_;
  RoutedExperts experts_;
  std::optional<SharedExpert> shared_;
  float output_scale_;
  Matrix router_logits_;  // [T, E]
  Routing routing_;
};

}  // namespace moeloom
