#include "model/decoder_layer.hpp"

#include "base/lent.hpp"
#include "moeloom/base/errors.hpp"
#include "tensor/scaled.hpp"

#include <utility>

namespace moeloom {
namespace {

FeedForwardContext feed_forward_context(const LayerContext& c) {
  return {.kernels = c.kernels,
          .moe = c.moe,
          .workspace = c.workspace.feed_forward,
          .clock = c.clock,
          .recompute = c.recompute,
          .experts_needed = c.experts_needed,
          .experts_done = c.experts_done};
}

std::span<const float> scalar_of(const LayerSpec& spec, const ParameterStore& store) {
  if (spec.scalar.empty()) return {};
  const Parameter& scalar = store.find(spec.scalar);
  require(scalar.spec.frozen && scalar.value.size() == 1,
          spec.scalar + " is one number, which is not trained");
  return scalar.value.flat();
}

}  // namespace

DecoderLayer::DecoderLayer(const LayerSpec& spec, const ParameterStore& store, Index layer,
                           const RoutingSettings& routing)
    : mixer_(spec.mixer, spec.mixer_norm, spec.mixer_output_norm, store, spec.residual_scale),
      feed_forward_(spec, store, layer, routing),
      parallel_(spec.parallel),
      scalar_(scalar_of(spec, store)) {
  if (spec.per_layer_input) per_layer_input_.emplace(*spec.per_layer_input, store);
}

void swap(DecoderLayer& layer, LayerActivations& other) {
  layer.mixer_.swap_activations(other.mixer);
  std::swap(layer.middle_, other.middle);
  swap(layer.feed_forward_, other.feed_forward);
}

void swap(DecoderLayer& layer, LayerNormed& other) {
  layer.mixer_.swap_normed(other.mixer);
  swap(layer.feed_forward_, other.feed_forward);
}

void DecoderLayer::keep_middle(ConstMatrixView hidden) {
  middle_.reshape_uninitialised(hidden.rows, hidden.cols);
  copy(hidden, middle_);
}

void DecoderLayer::forward(const LayerContext& c, MixerCache* cache, MatrixView hidden,
                           RouterStatistics& statistics) {
  const Lent normed(*this, c.workspace.normed, c.recompute == Recompute::kExperts);
  const Lent block(*this, c.workspace.activations, c.recompute == Recompute::kBlock);
  c.clock.enter(Phase::kAttention);
  if (parallel_) keep_middle(hidden);
  if (cache != nullptr) {
    mixer_.forward_cached(c.kernels, c.mixer, *cache, hidden);
  } else {
    mixer_.forward(c.kernels, c.mixer, hidden);
  }
  c.clock.enter(Phase::kDense);
  if (!parallel_) keep_middle(hidden);
  feed_forward_.forward(feed_forward_context(c), middle_, hidden, statistics);
  if (!per_layer_input_ && scalar_.empty()) return;
  c.clock.enter(Phase::kDense);
  if (per_layer_input_)
    per_layer_input_->forward(c.kernels, c.per_layer.value, hidden, c.workspace.per_layer_input);
  if (!scalar_.empty()) copy_scaled(hidden, scalar_.front(), hidden);
}

void DecoderLayer::make_again(const LayerContext& c) {
  c.clock.enter(Phase::kAttention);
  const ConstMatrixView input = mixer_.input();
  Matrix& hidden = c.workspace.hidden;
  hidden.reshape_uninitialised(input.rows, input.cols);
  copy(input, hidden);
  if (parallel_) keep_middle(hidden);
  mixer_.forward(c.kernels, c.mixer, hidden);
  if (!parallel_) keep_middle(hidden);
}

void DecoderLayer::backward(const LayerContext& c, const RouterLossGradient& router_losses,
                            MatrixView d_hidden) {
  const Lent normed(*this, c.workspace.normed, c.recompute == Recompute::kExperts);
  const Lent block(*this, c.workspace.activations, c.recompute == Recompute::kBlock);
  if (c.recompute == Recompute::kBlock) make_again(c);
  c.clock.enter(Phase::kDense);
  if (!scalar_.empty()) copy_scaled(d_hidden, scalar_.front(), d_hidden);
  if (per_layer_input_)
    per_layer_input_->backward(c.kernels, d_hidden, c.per_layer.gradient, c.workspace.per_layer_input);
  Matrix& d_middle = c.workspace.d_middle;
  d_middle.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
  feed_forward_.backward(feed_forward_context(c), router_losses, middle_, d_hidden, d_middle);
  if (!parallel_) add(d_middle, d_hidden);
  c.clock.enter(Phase::kAttention);
  if (c.recompute == Recompute::kExperts) mixer_.make_normed_again(c.kernels);
  mixer_.backward(c.kernels, c.mixer, d_hidden, c.workspace.mixer);
  if (parallel_) add(d_middle, d_hidden);
}

double DecoderWorkspace::bytes_of(const LayerSpec& layer, Index tokens) {
  const bool behind_mixer = layer.mixer_output_norm || layer.residual_scale != 1;
  const double per_layer =
      layer.per_layer_input ? PerLayerInputWorkspace::bytes_of(*layer.per_layer_input, tokens) : 0.0;
  return rows_bytes(tokens, {layer.hidden_size, behind_mixer ? layer.hidden_size : 0, layer.hidden_size}) +
         FeedForwardWorkspace::bytes_of(layer, tokens) + per_layer;
}

double DecoderLayer::bytes_of(const LayerSpec& layer, Index tokens) {
  const double per_layer =
      layer.per_layer_input ? PerLayerInput::bytes_of(*layer.per_layer_input, tokens) : 0.0;
  return rows_bytes(tokens, {layer.hidden_size}) +
         BranchOutput::bytes_of(layer.mixer_output_norm, layer.residual_scale, tokens, layer.hidden_size) +
         FeedForward::bytes_of(layer, tokens) + per_layer;
}

}  // namespace moeloom
