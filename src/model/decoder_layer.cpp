#include "moeloom/model/decoder_layer.hpp"

namespace moeloom {
namespace {

std::string prefix(Index layer) {
  return "model.layers." + std::to_string(layer) + ".";
}

AttentionLayer make_attention(const LayerSpec& spec, const ParameterStore& store) {
  return AttentionLayer(spec.attention, spec.attention_norm, spec.attention_output_norm, store);
}

MoeLayer make_moe(const ModelConfig& config, const ParameterStore& store, Index layer) {
  const std::string mlp = prefix(layer) + "mlp.";
  const Parameter& gate_up = store.find(mlp + "experts.gate_up_proj");
  const Parameter& down = store.find(mlp + "experts.down_proj");
  const Parameter& router = store.find(mlp + "gate.weight");
  return MoeLayer({.router = router.value,
                   .d_router = router.grad,
                   .experts = {.experts = gate_up.spec.groups,
                               .gate_up = gate_up.value,
                               .down = down.value,
                               .d_gate_up = gate_up.grad,
                               .d_down = down.grad}},
                  {.num_experts = config.num_experts,
                   .top_k = config.num_experts_per_tok,
                   .norm_topk_prob = config.norm_topk_prob});
}

std::variant<MoeLayer, MlpLayer> make_feed_forward(const ModelConfig& config, const ParameterStore& store,
                                                   Index layer) {
  if (config.is_sparse(layer)) return make_moe(config, store, layer);
  return MlpLayer(config.layer(layer).mlp.value(), store);
}

}  // namespace

DecoderLayer::DecoderLayer(const ModelConfig& config, const ParameterStore& store, Index layer)
    : attention_(make_attention(config.layer(layer), store)),
      norm_(Norm::of(store, prefix(layer) + "post_attention_layernorm.weight")),
      epsilon_(static_cast<float>(config.rms_norm_eps)),
      feed_forward_(make_feed_forward(config, store, layer)) {}

void DecoderLayer::forward(const LayerContext& c, KeyValueCache* cache, MatrixView hidden,
                           RouterStatistics& statistics) {
  c.clock.enter(Phase::kAttention);
  if (cache != nullptr) {
    attention_.forward_cached(c.kernels, c.attention, *cache, hidden);
  } else {
    attention_.forward(c.kernels, c.attention, hidden);
  }
  c.clock.enter(Phase::kDense);
  middle_.reshape_uninitialised(hidden.rows, hidden.cols);
  normed_.reshape_uninitialised(hidden.rows, hidden.cols);
  inv_rms_.resize(at(hidden.rows));
  copy(hidden, middle_);
  c.kernels.rmsnorm.forward(hidden, norm_.weight, {epsilon_}, normed_, inv_rms_);
  if (auto* moe = std::get_if<MoeLayer>(&feed_forward_)) {
    moe->forward(c.kernels, c.dispatcher, normed_, c.is_real, c.weight_version, hidden, statistics,
                 c.workspace.moe, c.clock);
  } else {
    std::get<MlpLayer>(feed_forward_).forward(c.kernels, normed_, hidden, c.workspace.mlp);
  }
}

void DecoderLayer::backward(const LayerContext& c, const RouterLossGradient& router_losses,
                            MatrixView d_hidden) {
  Matrix& d_normed = c.workspace.d_normed;
  d_normed.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
  if (auto* moe = std::get_if<MoeLayer>(&feed_forward_)) {
    moe->backward(c.kernels, c.dispatcher, normed_, c.is_real, router_losses, d_hidden, d_normed,
                  c.workspace.moe, c.clock, c.expert_gradients);
    c.clock.enter(Phase::kDense);
  } else {
    c.clock.enter(Phase::kDense);
    std::get<MlpLayer>(feed_forward_).backward(c.kernels, normed_, d_hidden, d_normed, c.workspace.mlp);
  }
  c.kernels.rmsnorm.backward(d_normed, middle_, norm_.weight, {epsilon_}, inv_rms_, d_normed, norm_.grad);
  add(d_normed, d_hidden);
  c.clock.enter(Phase::kAttention);
  attention_.backward(c.kernels, c.attention, d_hidden, c.workspace.attention);
}

const MoeActivations* DecoderLayer::moe() const {
  const auto* moe = std::get_if<MoeLayer>(&feed_forward_);
  return moe == nullptr ? nullptr : &moe->activations();
}

const PackedExperts* DecoderLayer::packed() const {
  const auto* moe = std::get_if<MoeLayer>(&feed_forward_);
  return moe == nullptr ? nullptr : &moe->packed();
}

}  // namespace moeloom
