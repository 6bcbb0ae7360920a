#include "moe/routed_experts.hpp"

#include "base/lent.hpp"
#include "base/meanwhile.hpp"

#include <algorithm>
#include <numeric>

#include "dispatch/conservation.hpp"
#include "dispatch/leaf_counts.hpp"

namespace moeloom {
namespace {

/// Does `work`; counts that do not agree are those of this layer.
template <typename Work>
void in_layer(Index layer, const MoeContext& context, Work work) {
  try {
    work();
  } catch (const CountError& error) {
    const Communicator* const world = context.tokens.world;
    throw CountError("layer " + std::to_string(layer) + ": " + error.what() +
                     (world == nullptr ? "" : " (seen by rank " + std::to_string(world->rank()) + ")"));
  }
}

/// Tokens of a slice, as even as they divide.
Stretch tokens_of(Index tokens, Index slices, Index slice) {
  return {tokens * slice / slices, tokens * (slice + 1) / slices};
}

template <typename Number>
BasicView<Number> rows_of(BasicView<Number> all, const Stretch& tokens) {
  return all.rows_from(tokens.begin, tokens.size());
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

}  // namespace

RoutedExperts::RoutedExperts(const ExpertShard& experts, Index layer) : shard_(experts), layer_(layer) {}

void RoutedExperts::show(const ExpertShard& experts, Index layer) {
  shard_ = experts;
  layer_ = layer;
}

void RoutedExperts::count_leaves(const Communicator& ep, const ChosenExperts& chosen) {
  const Index each = shard_.sums->rows_per_leaf, leaves = saved_.plan.tokens / each;
  std::span<const std::int32_t> numbers = chosen.topk_idx;
  Index count = std::ssize(saved_.plan.tokens_per_expert);
  std::vector<std::int32_t> served;
  if (const ReplicaPlan& replicas = saved_.plan.replicas; replicas.moves()) {
    replicas.served.translate(numbers, ep.rank(), served);
    numbers = served;
    count = replicas.served.count();
  }
  saved_.rows_per_leaf = exchange_leaf_counts(ep, numbers, count, {leaves, each * chosen.top_k});
  for (Index group = 0; group < std::ssize(saved_.plan.rows_per_source); ++group) {
    const auto first = saved_.rows_per_leaf.begin() + group * leaves;
    check_told(group % saved_.plan.ranks, ep.rank(), std::reduce(first, first + leaves, Index{0}),
               saved_.plan.rows_per_source[at(group)]);
  }
}

ExpertPass RoutedExperts::expert_pass(const MoeContext& context, const DispatchPlan& plan) {
  GroupedRows rows = plan.grouped_rows();
  if (!saved_.rows_per_leaf.empty())
    rows = {saved_.rows_per_leaf, std::ssize(saved_.rows_per_leaf) / rows.groups()};
  return {context.kernels, shard_, packed_, rows, saved_.experts, context.workspace.experts, context.clock};
}

Index RoutedExperts::slices_within(const MoeContext& context, const ChosenExperts& chosen) {
  saved_.slices = 1;
  if (context.row_budget == 0) return 1;
  const auto fits = [&](Index rows) { return largest_over(context.tokens, rows) <= context.row_budget; };
  if (fits(rows_before_replicas(saved_.plan))) return 1;
  const Index most_tokens = largest_over(context.tokens, saved_.plan.tokens);
  while (saved_.slices < most_tokens) {
    saved_.slices *= 2;
    Index rows = 0;
    for (Index slice = 0; slice < saved_.slices; ++slice)
      rows = std::max(rows, rows_before_replicas(plan_slice(context, chosen, slice).plan));
    if (fits(rows)) break;
  }
  return saved_.slices;
}

RoutedExperts::Slice RoutedExperts::plan_slice(const MoeContext& context, const ChosenExperts& chosen,
                                               Index slice) {
  const Stretch tokens = tokens_of(saved_.plan.tokens, saved_.slices, slice);
  if (saved_.slices == 1) return {saved_.plan, tokens, chosen};
  DispatchPlan& plan = context.workspace.slice_plan;
  context.clock.enter(Phase::kPlan);
  context.dispatcher.plan(chosen.of(tokens).topk_idx, chosen.top_k, plan);
  return {plan, tokens, chosen.of(tokens)};
}

void RoutedExperts::forward(const MoeContext& context, ConstMatrixView hidden_states,
                            const ChosenExperts& chosen, MatrixView output,
                            const std::function<void()>& beside) {
  const Lent experts(saved_.experts, context.workspace.kept, context.recompute);
  context.clock.enter(Phase::kPlan);
  in_layer(layer_, context, [&] {
    context.dispatcher.plan(chosen.topk_idx, chosen.top_k, saved_.plan);
    saved_.rows_per_leaf.clear();
    if (shard_.sums != nullptr && context.tokens.training) count_leaves(context.dispatcher.ep(), chosen);
    const Index slices = slices_within(context, chosen);
    for (Index i = 0; i < slices; ++i)
      forward_slice(context, plan_slice(context, chosen, i), hidden_states, output,
                    i == 0 ? beside : nullptr);
  });
}

void RoutedExperts::forward_slice(const MoeContext& context, const Slice& slice,
                                  ConstMatrixView hidden_states, MatrixView output,
                                  const std::function<void()>& beside) {
  auto& [kernels, dispatcher, experts, workspace, clock, tokens, version, _, recompute, budget] = context;
  const RoundTrip trip{.plan = slice.plan,
                       .tokens = rows_of(hidden_states, slice.tokens),
                       .rows = saved_.experts.rows,
                       .scalars_out = ScalarsOut{slice.chosen.topk_weights, saved_.experts.weights},
                       .results = workspace.experts.output,
                       .sums = rows_of(output, slice.tokens),
                       .mode = Write::kAdd};
  rebalanced_.add(slice.plan.replicas, dispatcher.ep().rank());
  clock.enter(Phase::kDispatch);
  dispatcher.begin(trip);
  const Meanwhile rows_travel(dispatcher.progress());
  if (beside) beside();

  clock.enter(Phase::kExperts);
  packed_.refresh(kernels.grouped_matmul, shard_, version);
  experts.forward(expert_pass(context, slice.plan), dispatcher, trip, rebalanced_);
  most_rows_ = std::max(most_rows_, saved_.experts.rows.rows());

  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);
}

void RoutedExperts::keep_rows(const MoeContext& context, const Slice& slice, ConstMatrixView hidden_states) {
  const RoundTrip trip{.plan = slice.plan,
                       .tokens = rows_of(hidden_states, slice.tokens),
                       .rows = saved_.experts.rows,
                       .scalars_out = ScalarsOut{slice.chosen.topk_weights, saved_.experts.weights},
                       .results = context.workspace.experts.output,
                       .sums = {},
                       .legs = Legs::kOut};
  context.clock.enter(Phase::kDispatch);
  context.dispatcher.begin(trip);
  const Meanwhile rows_travel(context.dispatcher.progress());
  context.clock.enter(Phase::kExperts);
  context.experts.forward(expert_pass(context, slice.plan), context.dispatcher, trip, rebalanced_);
  context.clock.enter(Phase::kDispatch);
  context.dispatcher.finish(trip);
}

std::span<const float> RoutedExperts::backward(const MoeContext& context, ConstMatrixView hidden_states,
                                               const ChosenExperts& chosen, ConstMatrixView d_output,
                                               MatrixView d_hidden_states,
                                               const std::function<void()>& beside) {
  const Lent experts(saved_.experts, context.workspace.kept, context.recompute);
  MoeWorkspace& workspace = context.workspace;
  const bool whole = saved_.slices == 1;
  const auto fill_and_beside = [&] {  // rows are added to what it leaves
    fill(d_hidden_states, 0);
    beside();
  };
  const std::function<void()> first = beside ? std::function<void()>(fill_and_beside) : nullptr;
  const Write mode = beside ? Write::kAdd : Write::kReplace;
  workspace.d_topk_weights.resize(chosen.topk_weights.size());
  in_layer(layer_, context, [&] {
    for (Index i = 0; i < saved_.slices; ++i) {
      const Slice slice = plan_slice(context, chosen, i);
      if (!whole || context.recompute) keep_rows(context, slice, hidden_states);
      std::vector<float>& d_weights = whole ? workspace.d_topk_weights : workspace.slice_d_topk_weights;
      backward_slice(context, slice, d_output, d_hidden_states, mode,
                     i == 0 ? context.expert_gradients : Write::kAdd, d_weights, i == 0 ? first : nullptr);
      if (!whole)
        std::ranges::copy(d_weights, workspace.d_topk_weights.begin() + slice.tokens.begin * chosen.top_k);
    }
  });
  return workspace.d_topk_weights;
}

void RoutedExperts::backward_slice(const MoeContext& context, const Slice& slice, ConstMatrixView d_output,
                                   MatrixView d_hidden_states, Write mode, Write gradients,
                                   std::vector<float>& d_topk_weights, const std::function<void()>& beside) {
  ExpertWorkspace& workspace = context.workspace.experts;
  workspace.d_weights.resize(saved_.experts.weights.size());  // before the trip says where they are
  const RoundTrip trip{.plan = slice.plan,
                       .tokens = rows_of(d_output, slice.tokens),
                       .rows = context.workspace.d_rows,
                       .scalars_out = std::nullopt,
                       .results = workspace.output,
                       .sums = rows_of(d_hidden_states, slice.tokens),
                       .mode = mode,
                       .scalars_back = ScalarsBack{workspace.d_weights, d_topk_weights}};
  context.clock.enter(Phase::kDispatch);
  context.dispatcher.begin(trip);
  const Meanwhile rows_travel(context.dispatcher.progress());
  if (beside) beside();

  context.clock.enter(Phase::kExperts);
  context.experts.backward(expert_pass(context, slice.plan), context.dispatcher, trip, gradients,
                           rebalanced_);

  context.clock.enter(Phase::kCombine);
  context.dispatcher.finish(trip);
}

}  // namespace moeloom
