#include "moe/moe_layer.hpp"

#include "base/lent.hpp"

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
               weights.router_adapter},
              router, layer, routing.training, routing.dtype),
      experts_(shard_of(weights, router), layer) {
  if (weights.shared) shared_.emplace(*weights.shared);
}

void MoeLayer::forward_shared(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output) {
  context.clock.enter(
      Phase::kDense);  // not kExperts: the prediction of grouped matmul is held against that one
  const Lent lent(shared_->activations(), context.workspace.kept_shared, context.recompute);
  shared_->forward(context.kernels, hidden_states, output, context.workspace.shared);
}

void MoeLayer::forward(const MoeContext& context, ConstMatrixView hidden_states, MatrixView output,
                       RouterStatistics& statistics) {
  const RoutedTokens& tokens = context.tokens;
  context.clock.enter(Phase::kRouter);
  router_.forward(tokens, hidden_states, router_logits_, routing_);
  statistics.add(layer_, routing_, tokens.is_real, tokens.tokens_per_sequence);
  std::function<void()> beside;
  if (shared_) beside = [&] { forward_shared(context, hidden_states, output); };
  experts_.forward(context, hidden_states, chosen(), output, beside);
}

void MoeLayer::backward_shared(const MoeContext& context, ConstMatrixView hidden_states,
                               ConstMatrixView d_output, MatrixView d_hidden_states) {
  context.clock.enter(Phase::kDense);
  const Lent lent(shared_->activations(), context.workspace.kept_shared, context.recompute);
  if (context.recompute) shared_->keep(context.kernels, hidden_states);
  shared_->backward(context.kernels, hidden_states, d_output, d_hidden_states, context.workspace.shared);
}

void MoeLayer::backward(const MoeContext& context, ConstMatrixView hidden_states,
                        const RouterLossGradient& router_losses, ConstMatrixView d_output,
                        MatrixView d_hidden_states) {
  std::function<void()> beside;
  if (shared_) beside = [&] { backward_shared(context, hidden_states, d_output, d_hidden_states); };
  const std::span<const float> d_topk_weights =
      experts_.backward(context, hidden_states, chosen(), d_output, d_hidden_states, beside);
  context.clock.enter(Phase::kRouter);
  router_.backward(context.tokens, hidden_states, routing_, d_topk_weights, router_losses, router_logits_,
                   d_hidden_states);
}

}  // namespace moeloom
