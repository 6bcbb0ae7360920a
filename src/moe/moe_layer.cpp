#include "moeloom/moe/moe_layer.hpp"

namespace moeloom {

MoeLayer::MoeLayer(MoeWeights weights, RouterSettings router) : weights_(weights), router_(router) {
  if (weights.shared) shared_.emplace(*weights.shared);
}

ExpertPass MoeLayer::expert_pass(const MoeContext& context) {
  GroupedRows rows = saved_.plan.grouped_rows();
  rows.between = context.dispatcher.progress();
  return {context.kernels, weights_.experts,          packed_,      rows,
          saved_.experts,  context.workspace.experts, context.clock};
}

void MoeLayer::forward(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output,
                       RouterStatistics& statistics) {
  const auto& [kernels, dispatcher, experts, workspace, clock, is_real, version, _] = context;
  clock.enter(Phase::kRouter);
  saved_.router_logits.reshape_uninitialised(hidden_states.rows, router_.num_experts);
  matmul(hidden_states, weights_.router, saved_.router_logits);
  route(saved_.router_logits, router_, saved_.routing);
  statistics.add(saved_.routing, router_.top_k, is_real);

  clock.enter(Phase::kPlan);
  dispatcher.plan(saved_.routing.topk_idx, router_.top_k, saved_.plan);

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
  experts.forward(expert_pass(context), dispatcher, trip);

  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);
}

void MoeLayer::backward(const MoeContext& context, ConstMatrixView hidden_states,
                        const RouterLossGradient& router_losses, ConstMatrixView d_output,
                        MatrixView d_hidden_states) {
  const auto& [kernels, dispatcher, experts, workspace, clock, is_real, _, gradients] = context;
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
  experts.backward(expert_pass(context), dispatcher, trip, gradients);

  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);

  clock.enter(Phase::kRouter);
  Matrix& d_logits = saved_.router_logits;
  route_backward(saved_.routing, router_, workspace.d_topk_weights, router_losses, is_real, d_logits);
  matmul_input_grad(d_logits, weights_.router, d_hidden_states, Write::kAdd);
  if (weights_.d_router.rows > 0) matmul_weight_grad(d_logits, hidden_states, weights_.d_router);
}

}  // namespace moeloom
