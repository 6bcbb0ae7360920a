// The experts of a layer for whoever chose them: a plan, rows out to the ranks that hold their experts, one
// grouped matmul over the resident ones, and back. A MoeLayer is a router before them.
#pragma once

#include "base/phase_clock.hpp"
#include "moe/dispatch/dispatcher.hpp"
#include "moe/experts/expert_runner.hpp"
#include "moe/experts/shared_expert.hpp"
#include "moe/routing/router_layer.hpp"
#include "moeloom/moe/routing/chosen_experts.hpp"

#include <functional>
#include <span>

namespace moeloom {

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
  Matrix scaled;                            // [T, D], of a block whose output has a factor

  /// Of experts of `width`; without the shared expert's, `scaled`, and what backward makes again.
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

/// What a forward leaves for its backward and for those who look in from outside.
struct RoutedActivations {
  DispatchPlan plan;                 // of all tokens
  std::vector<Index> rows_per_leaf;  // rows_per_source of the plan by leaf; empty where sums are not exact
  ExpertActivations experts;         // empty where backward makes them again
  Index slices = 1;                  // in which the rows came; of several, `experts` are the last one's
};

class RoutedExperts {
 public:
  /// `layer` names it in errors.
  explicit RoutedExperts(const ExpertShard& experts, Index layer = 0);

  /// From now on it is of these experts: for a program that shows its weights at each call. What is packed of
  /// them follows MoeContext::weight_version alone; a backward needs the numbers of its forward.
  void show(const ExpertShard& experts, Index layer);

  /// hidden_states [T, D] -> sum over a token's slots of weight * expert, added to `output` [T, D].
  /// `beside`: is called once, while rows travel, and may add to `output` too. Collective over ep, and with a
  /// row budget over tokens.world. Throws CountError where ranks do not agree about rows, ShapeError.
  void forward(const MoeContext& context, ConstMatrixView hidden_states, const ChosenExperts& chosen,
               MatrixView output, const std::function<void()>& beside = {});
  /// d_output [T, D] -> d_hidden_states [T, D], replaced, but for what `beside` adds to it; the shard's
  /// gradients are added to or written -> d_topk_weights [T, K], until the next backward with this workspace.
  /// Once a forward. Collective as forward().
  std::span<const float> backward(const MoeContext& context, ConstMatrixView hidden_states,
                                  const ChosenExperts& chosen, ConstMatrixView d_output,
                                  MatrixView d_hidden_states, const std::function<void()>& beside = {});

  const RoutedActivations& activations() const { return saved_; }
  const PackedExperts& packed() const { return packed_; }
  /// That this rank's experts had at once, in any forward so far.
  Index most_rows() const { return most_rows_; }
  /// All zeros without rebalancing.
  const RebalanceCounts& rebalance_counts() const { return rebalanced_; }

 private:
  /// Of consecutive tokens, and their plan.
  struct Slice {
    const DispatchPlan& plan;
    Stretch tokens;
    ChosenExperts chosen;
  };
  ExpertPass expert_pass(const MoeContext& context, const DispatchPlan& plan);
  /// How the rows of the plan are made of leaves. Collective over ep.
  void count_leaves(const Communicator& ep, const ChosenExperts& chosen);
  /// How many slices keep every rank's rows within the budget. Collective over tokens.world.
  Index slices_within(const MoeContext& context, const ChosenExperts& chosen);
  /// Collective over ep, but for a layer of one slice.
  Slice plan_slice(const MoeContext& context, const ChosenExperts& chosen, Index slice);
  void forward_slice(const MoeContext& context, const Slice& slice, ConstMatrixView hidden_states,
                     MatrixView output, const std::function<void()>& beside);
  /// Rows out once more, for what experts keep of them. Collective over ep.
  void keep_rows(const MoeContext& context, const Slice& slice, ConstMatrixView hidden_states);
  void backward_slice(const MoeContext& context, const Slice& slice, ConstMatrixView d_output,
                      MatrixView d_hidden_states, Write mode, Write gradients,
                      std::vector<float>& d_topk_weights, const std::function<void()>& beside);

  ExpertShard shard_;
  Index layer_;
  PackedExperts packed_;
  RoutedActivations saved_;
  Index most_rows_ = 0;
  RebalanceCounts rebalanced_;
};

}  // namespace moeloom
