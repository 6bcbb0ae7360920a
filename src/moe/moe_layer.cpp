#include "moeloom/moe/moe_layer.hpp"

namespace moeloom {

MoeLayer::MoeLayer(MoeWeights weights, RouterSettings router, Index layer, const RoutingSettings& routing)
    : weights_(weights),
      layer_(layer),
      router_({weights.router, weights.d_router}, router, layer, routing.training, routing.dtype) {
  if (router.weight_on_input) weights_.experts.activation.scale_on = RowScaleOn::kInputs;
  if (weights.shared) shared_.emplace(*weights.shared);
}

ExpertPass MoeLayer::expert_pass(const MoeContext& context, const DispatchPlan& plan) {
  GroupedRows rows = plan.grouped_rows();
  rows.between = context.dispatcher.progress();
  return {context.kernels, weights_.experts,          packed_,      rows,
          saved_.experts,  context.workspace.experts, context.clock};
}

void MoeLayer::forward(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output,
                       RouterStatistics& statistics) {
  const auto& [kernels, dispatcher, experts, workspace, clock, tokens, version, _, budget] = context;
  clock.enter(Phase::kRouter);
  router_.forward(tokens, hidden_states, saved_.router_logits, saved_.routing);
  statistics.add(layer_, saved_.routing, tokens.is_real, tokens.tokens_per_sequence);

  clock.enter(Phase::kPlan);
  dispatcher.plan(saved_.routing.sent_idx(), saved_.routing.top_k, saved_.plan);
  saved_.slices = slices_within(context);
  saved_.slices == 1 ? forward_whole(context, hidden_states, output)
                     : forward_sliced(context, hidden_states, output);
}

void MoeLayer::forward_whole(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output) {
  const auto& [kernels, dispatcher, experts, workspace, clock, tokens, version, _, budget] = context;
  const RoundTrip trip{.plan = saved_.plan,
                       .tokens = hidden_states,
                       .rows = saved_.experts.rows,
                       .scalars_out = ScalarsOut{saved_.routing.topk_weights, saved_.experts.weights},
                       .results = workspace.experts.output,
                       .sums = output,
                       .mode = Write::kAdd};
  clock.enter(Phase::kDispatch);
  dispatcher.begin(trip);

  if (shared_) {
    clock.enter(Phase::kDense);  // not kExperts: the prediction of grouped matmul is held against that one
    shared_->forward(kernels, hidden_states, output, workspace.shared, dispatcher.progress());
  }

  clock.enter(Phase::kExperts);
  experts.refresh(packed_, kernels.grouped_matmul, weights_.experts, version);
  experts.forward(expert_pass(context, saved_.plan), dispatcher, trip);

  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);
}

void MoeLayer::backward(const MoeContext& context, ConstMatrixView hidden_states,
                        const RouterLossGradient& router_losses, ConstMatrixView d_output,
                        MatrixView d_hidden_states) {
  saved_.slices == 1 ? backward_whole(context, hidden_states, d_output, d_hidden_states)
                     : backward_sliced(context, hidden_states, d_output, d_hidden_states);
  context.clock.enter(Phase::kRouter);
  router_.backward(context.tokens, hidden_states, saved_.routing, context.workspace.d_topk_weights,
                   router_losses, saved_.router_logits, d_hidden_states);
}

void MoeLayer::backward_whole(const MoeContext& context, ConstMatrixView hidden_states,
                              ConstMatrixView d_output, MatrixView d_hidden_states) {
  const auto& [kernels, dispatcher, experts, workspace, clock, tokens, _, gradients, budget] = context;
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

  if (shared_) {
    clock.enter(Phase::kDense);
    fill(d_hidden_states, 0);  // it adds, as what comes back will
    shared_->backward(kernels, hidden_states, d_output, d_hidden_states, workspace.shared,
                      dispatcher.progress());
  }

  clock.enter(Phase::kExperts);
  experts.backward(expert_pass(context, saved_.plan), dispatcher, trip, gradients);

  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);
}

}  // namespace moeloom
