#include "moeloom/moe/moe_layer.hpp"

namespace moeloom {

MoeLayer::MoeLayer(MoeWeights weights, RouterSettings router) : weights_(weights), router_(router) {
  if (weights.shared) shared_.emplace(*weights.shared);
}

void MoeLayer::forward(const KernelTable& kernels, Dispatcher& dispatcher, ConstMatrixView hidden_states,
                       std::span<const std::uint8_t> is_real, std::uint64_t version, MatrixView output,
                       RouterStatistics& statistics, MoeWorkspace& workspace, PhaseClock& clock) {
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
  if (!workspace.pool) packed_.refresh(kernels.grouped_matmul, weights_.experts, version);
  run_experts(kernels, dispatcher, trip, workspace, clock);

  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);
}

void MoeLayer::backward(const KernelTable& kernels, Dispatcher& dispatcher, ConstMatrixView hidden_states,
                        std::span<const std::uint8_t> is_real, const RouterLossGradient& router_losses,
                        ConstMatrixView d_output, MatrixView d_hidden_states, MoeWorkspace& workspace,
                        PhaseClock& clock, Write expert_gradients) {
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

  run_experts_backward(kernels, dispatcher, trip, workspace, expert_gradients, clock);
  clock.enter(Phase::kCombine);
  dispatcher.finish(trip);

  clock.enter(Phase::kRouter);
  Matrix& d_logits = saved_.router_logits;
  route_backward(saved_.routing, router_, workspace.d_topk_weights, router_losses, is_real, d_logits);
  matmul_input_grad(d_logits, weights_.router, d_hidden_states, Write::kAdd);
  if (weights_.d_router.rows > 0) matmul_weight_grad(d_logits, hidden_states, weights_.d_router);
}

ExpertPass MoeLayer::expert_pass(const KernelTable& kernels, const Dispatcher& dispatcher,
                                 MoeWorkspace& workspace, PhaseClock& clock) {
  GroupedRows rows = saved_.plan.grouped_rows();
  rows.between = dispatcher.progress();
  return {kernels, weights_.experts, packed_, rows, saved_.experts, workspace.experts, clock};
}

void MoeLayer::run_experts(const KernelTable& kernels, Dispatcher& dispatcher, const RoundTrip& trip,
                           MoeWorkspace& workspace, PhaseClock& clock) {
  if (workspace.pool)  // whose rows have landed, because its dispatchers move them whole
    return workspace.pool->forward(kernels, weights_.experts, saved_.plan.grouped_rows(), saved_.experts,
                                   workspace.experts, clock);
  const ExpertPass pass = expert_pass(kernels, dispatcher, workspace, clock);
  prepare_forward(pass);
  for (Index chunk = 0; chunk < dispatcher.chunks(); ++chunk) {
    clock.enter(Phase::kDispatch);
    dispatcher.await(trip, chunk);
    clock.enter(Phase::kExperts);
    forward_chunk(pass, chunk_of(saved_.plan.chunks, chunk));
    clock.enter(Phase::kCombine);
    dispatcher.send_back(trip, chunk);
  }
}

void MoeLayer::run_experts_backward(const KernelTable& kernels, Dispatcher& dispatcher, const RoundTrip& trip,
                                    MoeWorkspace& workspace, Write gradients, PhaseClock& clock) {
  clock.enter(Phase::kExperts);
  if (workspace.pool)
    return workspace.pool->backward(kernels, weights_.experts, saved_.plan.grouped_rows(), workspace.d_rows,
                                    saved_.experts, workspace.experts, gradients, clock);
  const ExpertPass pass = expert_pass(kernels, dispatcher, workspace, clock);
  prepare_backward(pass);
  // Others wait for rows, nobody for weight gradients: those fill the time until rows come, and that in which
  // the last ones travel.
  Index with_gradients = 0;
  const auto next_gradients = [&] {
    clock.enter(Phase::kExperts);
    weight_gradients(pass, chunk_of(saved_.plan.chunks, with_gradients++), workspace.d_rows, gradients);
  };
  for (Index chunk = 0; chunk < dispatcher.chunks(); ++chunk) {
    while (with_gradients < chunk && !dispatcher.arrived(chunk)) next_gradients();
    clock.enter(Phase::kDispatch);
    dispatcher.await(trip, chunk);
    clock.enter(Phase::kExperts);
    backward_chunk(pass, chunk_of(saved_.plan.chunks, chunk), workspace.d_rows);
    clock.enter(Phase::kCombine);
    dispatcher.send_back(trip, chunk);
  }
  while (with_gradients < dispatcher.chunks()) next_gradients();
}

}  // namespace moeloom
