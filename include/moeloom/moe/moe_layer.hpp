// One sparse block: router, plan, dispatch, experts, combine, and the shared expert of the families that have
// one, forward and backward.
#pragma once

#include "moeloom/base/phase_clock.hpp"
#include "moeloom/moe/dispatch/dispatcher.hpp"
#include "moeloom/moe/experts/expert_runner.hpp"
#include "moeloom/moe/experts/shared_expert.hpp"
#include "moeloom/moe/routing/router_layer.hpp"
#include "moeloom/moe/routing/router_losses.hpp"

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
};

/// What a forward leaves for its backward and for those who look in from outside.
struct MoeActivations {
  Matrix router_logits;  // [T, E]; backward turns it into their gradient
  Routing routing;
  DispatchPlan plan;                 // of all tokens
  std::vector<Index> rows_per_leaf;  // rows_per_source of the plan by leaf; empty where sums are not exact
  ExpertActivations experts;         // empty where backward makes them again
  Index slices = 1;                  // in which the rows came; of several, `experts` are the last one's

  /// Without `experts`.
  static double bytes_of(const RouterSettings& router, const TripShape& trip) {
    return rows_bytes(trip.tokens, {router.num_experts}) + Routing::bytes_of(router, trip.tokens) +
           DispatchPlan::bytes_of(trip);
  }
};

/// Buffers shared by all layers of a rank.
struct MoeWorkspace {
  ExpertWorkspace experts;
  SharedExpertWorkspace shared;
  ExpertActivations kept;  // where backward makes them again
  SharedExpertActivations kept_shared;
  RowBuffer d_rows;                   // [R, D]
  std::vector<float> d_topk_weights;  // [T, K]
  DispatchPlan slice_plan;
  std::vector<float> slice_d_topk_weights;  // [tokens of a slice, K]

  /// Of experts of `width`; without the shared expert's, and what backward makes again.
  static double bytes_of(const TripShape& trip, Index width) {
    const double whole =
        ExpertWorkspace::bytes_of(trip, width) + RowBuffer::bytes_of(trip) + array_bytes(trip.slots());
    if (!trip.rows.sliced()) return whole;
    const TripShape slice = trip.slice();
    return whole + DispatchPlan::bytes_of(slice) + array_bytes(slice.slots());
  }
};

/// What every sparse layer of one forward or backward is given.
struct MoeContext {
  const KernelTable& kernels;
  Dispatcher& dispatcher;
  ExpertRunner& experts;
  MoeWorkspace& workspace;
  PhaseClock& clock;
  RoutedTokens tokens = {};
  std::uint64_t weight_version = 1;
  Write expert_gradients = Write::kAdd;
  bool recompute = false;  // backward makes the experts' activations again, and no layer keeps them
  /// The most rows that a rank may receive at once; 0: as many as come. With more, a layer runs in slices of
  /// its tokens, as few as a power of two allows, and its backward does their forward again: rows and what is
  /// kept of them then take the memory of one slice. Outputs have the same bits; weight gradients are added
  /// slice by slice.
  Index row_budget = 0;
};

/// What routers do that the model does not say.
struct RoutingSettings {
  RouterTraining training = {};
  RouterDType dtype = RouterDType::kFp32;
  BalanceSettings balance = {};
  Index row_budget = 0;  // MoeContext's
};

class MoeLayer {
 public:
  /// `layer`: its number among the decoder's; RouterStatistics have more layers than that.
  MoeLayer(MoeWeights weights, RouterSettings router, Index layer = 0, const RoutingSettings& routing = {});

  /// hidden_states [T, D] -> the outputs of the chosen experts and the shared one, added to `output` [T, D]
  /// (the residual stream). Adds the layer to `statistics`. Collective over ep, as
  /// RouterLayer::forward(), and with a row budget over tokens.world.
  void forward(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output,
               RouterStatistics& statistics);
  /// d_output [T, D] -> d_hidden_states [T, D], replaced. The router's and the shared expert's gradients
  /// are added to, the experts' are added to or written. Collective over ep.
  void backward(const MoeContext& context, ConstMatrixView hidden_states,
                const RouterLossGradient& router_losses, ConstMatrixView d_output,
                MatrixView d_hidden_states);

  const MoeActivations& activations() const { return saved_; }
  const PackedExperts& packed() const { return packed_; }
  /// That this rank's experts had at once, in any forward so far.
  Index most_rows() const { return most_rows_; }
  /// All zeros without rebalancing.
  const RebalanceCounts& rebalance_counts() const { return rebalanced_; }

 private:
  ExpertPass expert_pass(const MoeContext& context, const DispatchPlan& plan);
  /// How the rows of the plan are made of leaves. Collective over ep.
  void count_leaves(const Communicator& ep);
  /// Rows of `tokens` out once more, for what experts keep of them. Collective over ep.
  void keep_rows(const MoeContext& context, const DispatchPlan& plan, ConstMatrixView tokens,
                 std::span<const float> topk_weights);
  /// How many slices keep every rank's rows within the budget. Collective over tokens.world.
  Index slices_within(const MoeContext& context);
  void plan_slice(const MoeContext& context, Index slice);
  void forward_whole(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output);
  void backward_whole(const MoeContext& context, ConstMatrixView hidden_states, ConstMatrixView d_output,
                      MatrixView d_hidden_states);
  /// The rows of a slice's tokens out and back, added to their output.
  void forward_slice(const MoeContext& context, Index slice, ConstMatrixView hidden_states,
                     MatrixView output);
  /// Its rows again, and then its backward.
  void backward_slice(const MoeContext& context, Index slice, ConstMatrixView hidden_states,
                      ConstMatrixView d_output, MatrixView d_hidden_states);
  void forward_sliced(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output);
  void backward_sliced(const MoeContext& context, ConstMatrixView hidden_states, ConstMatrixView d_output,
                       MatrixView d_hidden_states);

  MoeWeights weights_;
  Index layer_;
  RouterLayer router_;
  PackedExperts packed_;
  MoeActivations saved_;
  Index most_rows_ = 0;
  RebalanceCounts rebalanced_;
  std::optional<SharedExpert> shared_;
};

}  // namespace moeloom
