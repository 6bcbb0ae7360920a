#include "moe/moe_layer.hpp"

#include "base/lent.hpp"
#include "tensor/scaled.hpp"

namespace moeloom {
namespace {

ExpertShard shard_of(const MoeWeights& weights, const RouterSettings& router) {
  ExpertShard shard = weights.experts;
  if (router.weight_on_input) shard.activation.scale_on = RowScaleOn::kInputs;
  return shard;
}

}  // namespace

MoeLayer::MoeLayer(MoeWeights weights, RouterSettings router, Index layer, const RoutingSettings& routing)
    : layer_(layer),
      router_({weights.router, weights.d_router, weights.sums, weights.router_bias, weights.d_router_bias,
               weights.router_adapter, weights.d_expert_scale},
              router, layer, routing.training, routing.dtype),
      experts_(shard_of(weights, router), layer),
      output_scale_(weights.output_scale) {
  if (weights.shared) shared_.emplace(*weights.shared);
}

void MoeLayer::forward_shared(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output) {
  context.clock.enter(
      Phase::kDense);  // not kExperts: the prediction of grouped matmul is held against that one
  const Lent lent(shared_->activations(), context.workspace.kept_shared, context.recompute);
  shared_->forward(context.kernels, hidden_states, output, context.workspace.shared);
}

void MoeLayer::add_experts(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output) {
  std::function<void()> beside;
  if (shared_) beside = [&] { forward_shared(context, hidden_states, output); };
  experts_.forward(context, hidden_states, chosen(), output, beside);
}

void MoeLayer::forward(const MoeContext& context, const MoeInput& input, MatrixView output,
                       RouterStatistics& statistics) {
  const RoutedTokens& tokens = context.tokens;
  context.clock.enter(Phase::kRouter);
  router_.forward(tokens, input.router, router_logits_, routing_);
  statistics.add(layer_, routing_, tokens.is_real, tokens.tokens_per_sequence);
  if (output_scale_ == 1) return add_experts(context, input.experts, output);
  Matrix& whole = context.workspace.scaled;
  whole.reshape_uninitialised(output.rows, output.cols);
  fill(whole, 0);
  add_experts(context, input.experts, whole);
  add_scaled(whole, output_scale_, output);
}

void MoeLayer::backward_shared(const MoeContext& context, ConstMatrixView hidden_states,
                               ConstMatrixView d_output, MatrixView d_hidden_states) {
  context.clock.enter(Phase::kDense);
  const Lent lent(shared_->activations(), context.workspace.kept_shared, context.recompute);
  if (context.recompute) shared_->keep(context.kernels, hidden_states);
  shared_->backward(context.kernels, hidden_states, d_output, d_hidden_states, context.workspace.shared);
}

std::span<const float> MoeLayer::backward_experts(const MoeContext& context, ConstMatrixView hidden_states,
                                                  ConstMatrixView d_output, MatrixView d_hidden_states) {
  ConstMatrixView d_whole = d_output;
  if (output_scale_ != 1) {
    Matrix& scaled = context.workspace.scaled;
    scaled.reshape_uninitialised(d_output.rows, d_output.cols);
    copy_scaled(d_output, output_scale_, scaled);
    d_whole = scaled;
  }
  std::function<void()> beside;
  if (shared_) beside = [&] { backward_shared(context, hidden_states, d_whole, d_hidden_states); };
  return experts_.backward(context, hidden_states, chosen(), d_whole, d_hidden_states, beside);
}

void MoeLayer::backward_router(const MoeContext& context, ConstMatrixView input,
                               std::span<const float> d_topk_weights, const RouterLossGradient& router_losses,
                               MatrixView d_input) {
  context.clock.enter(Phase::kRouter);
  router_.backward(context.tokens, input, routing_, d_topk_weights, router_losses, router_logits_, d_input);
}

void MoeLayer::backward(const MoeContext& context, ConstMatrixView hidden_states,
                        const RouterLossGradient& router_losses, ConstMatrixView d_output,
                        MatrixView d_hidden_states) {
  const auto d_topk_weights = backward_experts(context, hidden_states, d_output, d_hidden_states);
  backward_router(context, hidden_states, d_topk_weights, router_losses, d_hidden_states);
}

void MoeLayer::backward(const MoeContext& context, const MoeInput& input,
                        const RouterLossGradient& router_losses, ConstMatrixView d_output,
                        const MoeInputGradient& d_input) {
  const auto d_topk_weights = backward_experts(context, input.experts, d_output, d_input.experts);
  fill(d_input.router, 0);
  backward_router(context, input.router, d_topk_weights, router_losses, d_input.router);
}

}  // namespace moeloom
