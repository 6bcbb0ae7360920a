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

  clock.enter(Phase::kDispatch);
  dispatcher.dispatch(saved_.plan, hidden_states, saved_.experts.rows,
                      ScalarsOut{saved_.routing.topk_weights, saved_.experts.weights});

  clock.enter(Phase::kExperts);
  dispatcher.prepare(workspace.experts.output, saved_.plan.rows(), hidden_states.cols);
  run_experts(kernels, version, workspace, clock);

  clock.enter(Phase::kCombine);
  dispatcher.combine(saved_.plan, workspace.experts.output, output, Write::kAdd);

  if (!shared_) return;
  clock.enter(Phase::kDense);  // not kExperts: the prediction of grouped matmul is held against that one
  shared_->forward(kernels, hidden_states, output, workspace.shared);
}

void MoeLayer::backward(const KernelTable& kernels, Dispatcher& dispatcher, ConstMatrixView hidden_states,
                        std::span<const std::uint8_t> is_real, const RouterLossGradient& router_losses,
                        ConstMatrixView d_output, MatrixView d_hidden_states, MoeWorkspace& workspace,
                        PhaseClock& clock, Write expert_gradients) {
  clock.enter(Phase::kDispatch);
  dispatcher.dispatch(saved_.plan, d_output, workspace.d_rows);

  clock.enter(Phase::kExperts);
  dispatcher.prepare(workspace.experts.output, saved_.plan.rows(), hidden_states.cols);
  run_experts_backward(kernels, workspace, expert_gradients, clock);

  clock.enter(Phase::kCombine);
  dispatcher.combine(saved_.plan, workspace.experts.output, d_hidden_states, Write::kReplace,
                     ScalarsBack{workspace.experts.d_weights, workspace.d_topk_weights});

  clock.enter(Phase::kRouter);
  Matrix& d_logits = saved_.router_logits;
  route_backward(saved_.routing, router_, workspace.d_topk_weights, router_losses, is_real, d_logits);
  matmul_input_grad(d_logits, weights_.router, d_hidden_states, Write::kAdd);
  if (weights_.d_router.rows > 0) matmul_weight_grad(d_logits, hidden_states, weights_.d_router);

  if (!shared_) return;
  clock.enter(Phase::kDense);
  shared_->backward(kernels, hidden_states, d_output, d_hidden_states, workspace.shared);
}

void MoeLayer::run_experts(const KernelTable& kernels, std::uint64_t version, MoeWorkspace& workspace,
                           PhaseClock& clock) {
  const GroupedRows rows = saved_.plan.grouped_rows();
  if (workspace.pool)
    return workspace.pool->forward(kernels, weights_.experts, rows, saved_.experts, workspace.experts, clock);
  packed_.refresh(kernels.grouped_matmul, weights_.experts, version);
  experts_forward(kernels, weights_.experts, packed_, rows, saved_.experts, workspace.experts, clock);
}

void MoeLayer::run_experts_backward(const KernelTable& kernels, MoeWorkspace& workspace, Write gradients,
                                    PhaseClock& clock) {
  const GroupedRows rows = saved_.plan.grouped_rows();
  if (workspace.pool)
    return workspace.pool->backward(kernels, weights_.experts, rows, workspace.d_rows, saved_.experts,
                                    workspace.experts, gradients, clock);
  experts_backward(kernels, weights_.experts, packed_, rows, workspace.d_rows, saved_.experts,
                   workspace.experts, gradients, clock);
}

}  // namespace moeloom
