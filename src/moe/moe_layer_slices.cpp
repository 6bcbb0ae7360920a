// A layer whose rows are more than its budget, a slice of its tokens after the other.
#include "moeloom/base/lent.hpp"
#include "moeloom/base/meanwhile.hpp"
#include "moeloom/moe/moe_layer.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// Tokens of a slice, as even as they divide.
Stretch tokens_of(Index tokens, Index slices, Index slice) {
  return {tokens * slice / slices, tokens * (slice + 1) / slices};
}

Index largest_over(const RoutedTokens& tokens, Index mine) {
  return tokens.world == nullptr ? mine
                                 : static_cast<Index>(tokens.world->all_max(static_cast<double>(mine)));
}

/// Rows of the fullest rank of ep without replicas, where some are planned, else this rank's: the number of
/// slices, and with it the order of sums, is then that without rebalancing. Replicas make no rank fuller than
/// the fullest was.
Index rows_before_replicas(const DispatchPlan& plan) {
  const bool planned = plan.replicas.placement.experts() > 0;
  return planned ? plan.replicas.fullest_before : plan.rows();
}

template <typename Number>
std::span<Number> slots_of(std::span<Number> all, const Stretch& tokens, Index top_k) {
  return all.subspan(at(tokens.begin * top_k), at(tokens.size() * top_k));
}

}  // namespace

Index MoeLayer::slices_within(const MoeContext& context) {
  if (context.row_budget == 0) return 1;
  const auto fits = [&](Index rows) { return largest_over(context.tokens, rows) <= context.row_budget; };
  saved_.slices = 1;
  if (fits(rows_before_replicas(saved_.plan))) return 1;
  const Index most_tokens = largest_over(context.tokens, saved_.plan.tokens);
  while (saved_.slices < most_tokens) {
    saved_.slices *= 2;
    Index rows = 0;
    for (Index slice = 0; slice < saved_.slices; ++slice) {
      plan_slice(context, slice);
      rows = std::max(rows, rows_before_replicas(context.workspace.slice_plan));
    }
    if (fits(rows)) break;
  }
  return saved_.slices;
}

void MoeLayer::plan_slice(const MoeContext& context, Index slice) {
  const Index top_k = saved_.routing.top_k;
  const Stretch tokens = tokens_of(saved_.plan.tokens, saved_.slices, slice);
  context.clock.enter(Phase::kPlan);
  context.dispatcher.plan(slots_of(saved_.routing.sent_idx(), tokens, top_k), top_k,
                          context.workspace.slice_plan);
}

void MoeLayer::forward_slice(const MoeContext& context, Index slice, ConstMatrixView hidden_states,
                             MatrixView output) {
  const auto& [kernels, dispatcher, experts, workspace, clock, all, version, _, recompute, budget] = context;
  const Stretch tokens = tokens_of(saved_.plan.tokens, saved_.slices, slice);
  const std::span<const float> weights = saved_.routing.topk_weights;
  plan_slice(context, slice);
  rebalanced_.add(workspace.slice_plan.replicas, dispatcher.ep().rank());
  const RoundTrip trip{
      .plan = workspace.slice_plan,
      .tokens = hidden_states.rows_from(tokens.begin, tokens.size()),
      .rows = saved_.experts.rows,
      .scalars_out = ScalarsOut{slots_of(weights, tokens, saved_.routing.top_k), saved_.experts.weights},
      .results = workspace.experts.output,
      .sums = output,
      .mode = Write::kAdd};
  clock.enter(Phase::kDispatch);
  dispatcher.begin(trip);
  const Meanwhile rows_travel(dispatcher.progress());
  clock.enter(Phase::kExperts);
  packed_.refresh(kernels.grouped_matmul, weights_.experts, version);
  experts.forward(expert_pass(context, workspace.slice_plan), dispatcher, trip, rebalanced_);
  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);
}

void MoeLayer::forward_sliced(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output) {
  if (shared_) {
    context.clock.enter(Phase::kDense);
    const Lent lent(shared_->activations(), context.workspace.kept_shared, context.recompute);
    shared_->forward(context.kernels, hidden_states, output, context.workspace.shared);
  }
  for (Index slice = 0; slice < saved_.slices; ++slice) {
    const Stretch tokens = tokens_of(hidden_states.rows, saved_.slices, slice);
    forward_slice(context, slice, hidden_states, output.rows_from(tokens.begin, tokens.size()));
  }
}

void MoeLayer::backward_slice(const MoeContext& context, Index slice, ConstMatrixView hidden_states,
                              ConstMatrixView d_output, MatrixView d_hidden_states) {
  const auto& [kernels, dispatcher, experts, workspace, clock, all, _, first_gradients, recompute, budget] =
      context;
  const Stretch tokens = tokens_of(hidden_states.rows, saved_.slices, slice);
  const auto rows_of = [&](auto view) { return view.rows_from(tokens.begin, tokens.size()); };
  plan_slice(context, slice);
  keep_rows(context, workspace.slice_plan, rows_of(hidden_states),
            slots_of(std::span<const float>(saved_.routing.topk_weights), tokens, saved_.routing.top_k));
  workspace.experts.d_weights.resize(saved_.experts.weights.size());
  const RoundTrip trip{
      .plan = workspace.slice_plan,
      .tokens = rows_of(d_output),
      .rows = workspace.d_rows,
      .scalars_out = std::nullopt,
      .results = workspace.experts.output,
      .sums = rows_of(d_hidden_states),
      .mode = shared_ ? Write::kAdd : Write::kReplace,
      .scalars_back = ScalarsBack{workspace.experts.d_weights, workspace.slice_d_topk_weights}};
  clock.enter(Phase::kDispatch);
  dispatcher.begin(trip);
  const Meanwhile rows_travel(dispatcher.progress());
  clock.enter(Phase::kExperts);
  experts.backward(expert_pass(context, workspace.slice_plan), dispatcher, trip,
                   slice == 0 ? first_gradients : Write::kAdd, rebalanced_);
  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);
  std::ranges::copy(workspace.slice_d_topk_weights,
                    workspace.d_topk_weights.begin() + tokens.begin * saved_.routing.top_k);
}

void MoeLayer::backward_sliced(const MoeContext& context, ConstMatrixView hidden_states,
                               ConstMatrixView d_output, MatrixView d_hidden_states) {
  context.workspace.d_topk_weights.resize(saved_.routing.topk_weights.size());
  if (shared_) {
    context.clock.enter(Phase::kDense);
    fill(d_hidden_states, 0);
    const Lent lent(shared_->activations(), context.workspace.kept_shared, context.recompute);
    if (context.recompute) shared_->keep(context.kernels, hidden_states);
    shared_->backward(context.kernels, hidden_states, d_output, d_hidden_states, context.workspace.shared);
  }
  for (Index slice = 0; slice < saved_.slices; ++slice)
    backward_slice(context, slice, hidden_states, d_output, d_hidden_states);
}

}  // namespace moeloom
