#include "moeloom/moe/moe_layer.hpp"

#include "moeloom/base/lent.hpp"
#include "moeloom/base/meanwhile.hpp"

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

}  // namespace

MoeLayer::MoeLayer(MoeWeights weights, RouterSettings router, Index layer, const RoutingSettings& routing)
    : weights_(weights),
      layer_(layer),
      router_({weights.router, weights.d_router, weights.sums, weights.router_bias, weights.d_router_bias,
               weights.router_adapter},
              router, layer, routing.training, routing.dtype) {
  if (router.weight_on_input) weights_.experts.activation.scale_on = RowScaleOn::kInputs;
  if (weights.shared) shared_.emplace(*weights.shared);
}

void MoeLayer::count_leaves(const Communicator& ep) {
  const Index each = weights_.experts.sums->rows_per_leaf, leaves = saved_.plan.tokens / each;
  std::span<const std::int32_t> numbers = saved_.routing.sent_idx();
  Index count = std::ssize(saved_.plan.tokens_per_expert);
  std::vector<std::int32_t> served;
  if (const ReplicaPlan& replicas = saved_.plan.replicas; replicas.moves()) {
    replicas.served.translate(numbers, ep.rank(), served);
    numbers = served;
    count = replicas.served.count();
  }
  saved_.rows_per_leaf = exchange_leaf_counts(ep, numbers, count, {leaves, each * saved_.plan.top_k});
  for (Index group = 0; group < std::ssize(saved_.plan.rows_per_source); ++group) {
    const auto first = saved_.rows_per_leaf.begin() + group * leaves;
    check_told(group % saved_.plan.ranks, ep.rank(), std::reduce(first, first + leaves, Index{0}),
               saved_.plan.rows_per_source[at(group)]);
  }
}

ExpertPass MoeLayer::expert_pass(const MoeContext& context, const DispatchPlan& plan) {
  GroupedRows rows = plan.grouped_rows();
  if (!saved_.rows_per_leaf.empty())
    rows = {saved_.rows_per_leaf, std::ssize(saved_.rows_per_leaf) / rows.groups()};
  return {context.kernels, weights_.experts,          packed_,      rows,
          saved_.experts,  context.workspace.experts, context.clock};
}

void MoeLayer::forward(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output,
                       RouterStatistics& statistics) {
  const RoutedTokens& tokens = context.tokens;
  const Lent experts(saved_.experts, context.workspace.kept, context.recompute);
  context.clock.enter(Phase::kRouter);
  router_.forward(tokens, hidden_states, saved_.router_logits, saved_.routing);
  statistics.add(layer_, saved_.routing, tokens.is_real, tokens.tokens_per_sequence);

  context.clock.enter(Phase::kPlan);
  in_layer(layer_, context, [&] {
    context.dispatcher.plan(saved_.routing.sent_idx(), saved_.routing.top_k, saved_.plan);
    saved_.rows_per_leaf.clear();
    if (weights_.experts.sums != nullptr && context.tokens.training) count_leaves(context.dispatcher.ep());
    saved_.slices = slices_within(context);
    saved_.slices == 1 ? forward_whole(context, hidden_states, output)
                       : forward_sliced(context, hidden_states, output);
    most_rows_ = std::max(most_rows_, saved_.experts.rows.rows());
  });
}

void MoeLayer::forward_whole(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output) {
  const auto& [kernels, dispatcher, experts, workspace, clock, tokens, version, _, recompute, budget] =
      context;
  const RoundTrip trip{.plan = saved_.plan,
                       .tokens = hidden_states,
                       .rows = saved_.experts.rows,
                       .scalars_out = ScalarsOut{saved_.routing.topk_weights, saved_.experts.weights},
                       .results = workspace.experts.output,
                       .sums = output,
                       .mode = Write::kAdd};
  rebalanced_.add(saved_.plan.replicas, dispatcher.ep().rank());
  clock.enter(Phase::kDispatch);
  dispatcher.begin(trip);
  const Meanwhile rows_travel(dispatcher.progress());

  if (shared_) {
    clock.enter(Phase::kDense);  // not kExperts: the prediction of grouped matmul is held against that one
    const Lent lent(shared_->activations(), workspace.kept_shared, recompute);
    shared_->forward(kernels, hidden_states, output, workspace.shared);
  }

  clock.enter(Phase::kExperts);
  packed_.refresh(kernels.grouped_matmul, weights_.experts, version);
  experts.forward(expert_pass(context, saved_.plan), dispatcher, trip, rebalanced_);

  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);
}

void MoeLayer::keep_rows(const MoeContext& context, const DispatchPlan& plan, ConstMatrixView tokens,
                         std::span<const float> topk_weights) {
  const RoundTrip trip{.plan = plan,
                       .tokens = tokens,
                       .rows = saved_.experts.rows,
                       .scalars_out = ScalarsOut{topk_weights, saved_.experts.weights},
                       .results = context.workspace.experts.output,
                       .sums = {},
                       .one_way = true};
  context.clock.enter(Phase::kDispatch);
  context.dispatcher.begin(trip);
  const Meanwhile rows_travel(context.dispatcher.progress());
  context.clock.enter(Phase::kExperts);
  context.experts.forward(expert_pass(context, plan), context.dispatcher, trip, rebalanced_);
  context.clock.enter(Phase::kDispatch);
  context.dispatcher.finish(trip);
}

void MoeLayer::backward(const MoeContext& context, ConstMatrixView hidden_states,
                        const RouterLossGradient& router_losses, ConstMatrixView d_output,
                        MatrixView d_hidden_states) {
  const Lent experts(saved_.experts, context.workspace.kept, context.recompute);
  in_layer(layer_, context, [&] {
    saved_.slices == 1 ? backward_whole(context, hidden_states, d_output, d_hidden_states)
                       : backward_sliced(context, hidden_states, d_output, d_hidden_states);
  });
  context.clock.enter(Phase::kRouter);
  router_.backward(context.tokens, hidden_states, saved_.routing, context.workspace.d_topk_weights,
                   router_losses, saved_.router_logits, d_hidden_states);
}

void MoeLayer::backward_whole(const MoeContext& context, ConstMatrixView hidden_states,
                              ConstMatrixView d_output, MatrixView d_hidden_states) {
  const auto& [kernels, dispatcher, experts, workspace, clock, tokens, _, gradients, recompute, budget] =
      context;
  if (recompute) keep_rows(context, saved_.plan, hidden_states, saved_.routing.topk_weights);
  workspace.experts.d_weights.resize(saved_.experts.weights.size());  // before the trip says where they are
  const RoundTrip trip{.plan = saved_.plan,
                       .tokens = d_output,
                       .rows = workspace.d_rows,
                       .scalars_out = std::nullopt,
                       .results = workspace.experts.output,
                       .sums = d_hidden_states,
                       .mode = shared_ ? Write::kAdd : Write::kReplace,
                       .scalars_back = ScalarsBack{workspace.experts.d_weights, workspace.d_topk_weights}};
  clock.enter(Phase::kDispatch);
  dispatcher.begin(trip);
  const Meanwhile rows_travel(dispatcher.progress());

  if (shared_) {
    clock.enter(Phase::kDense);
    fill(d_hidden_states, 0);  // it adds, as what comes back will
    const Lent lent(shared_->activations(), workspace.kept_shared, recompute);
    if (recompute) shared_->keep(kernels, hidden_states);
    shared_->backward(kernels, hidden_states, d_output, d_hidden_states, workspace.shared);
  }

  clock.enter(Phase::kExperts);
  experts.backward(expert_pass(context, saved_.plan), dispatcher, trip, gradients, rebalanced_);

  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);
}

}  // namespace moeloom
