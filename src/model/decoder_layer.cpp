#include "model/decoder_layer.hpp"

#include "base/lent.hpp"
#include "model/parts/linear.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

namespace moeloom {
namespace {

/// Biases of `experts` experts, a row each, if there are any; a frozen one has no gradient.
ExpertBiases biases_of(const ParameterStore& store, Index experts, const std::string& gate_up,
                       const std::string& down) {
  const auto rows_of = [&](MatrixView numbers) {
    const Index each = numbers.size() / std::max<Index>(experts, 1);
    return MatrixView(numbers.data, numbers.size() == 0 ? 0 : experts, each);
  };
  const auto gradient_of = [&](const Parameter& bias) {
    return bias.spec.frozen ? MatrixView() : rows_of(bias.grad);
  };
  const Parameter &first = store.find(gate_up), &second = store.find(down);
  return {rows_of(first.value), rows_of(second.value), gradient_of(first), gradient_of(second)};
}

SharedExpertWeights shared_weights(const MoeSpec& spec, const ParameterStore& store) {
  const Parameter& gate_up = store.find(spec.prefix + "shared_expert.gate_up_proj.weight");
  const Parameter& down = store.find(spec.prefix + "shared_expert.down_proj.weight");
  SharedExpertWeights weights{
      .gate_up = gate_up.value,
      .down = down.value,
      .d_gate_up = gate_up.grad,
      .d_down = down.grad,
      .activation = spec.activation,
      .sums = store.sums(Placement::kWorld),
      .adapters = {adapter_of(store, gate_up.spec.name), adapter_of(store, down.spec.name)},
      .gate_up_numbers = gate_up.weights(),
      .down_numbers = down.weights()};
  if (spec.shared->bias)
    weights.biases = biases_of(store, 1, spec.prefix + "shared_expert.gate_up_proj.bias",
                               spec.prefix + "shared_expert.down_proj.bias");
  if (!spec.shared->gated) return weights;
  const Parameter& gate = store.find(spec.prefix + "shared_expert_gate.weight");
  weights.gate = gate.value;
  weights.d_gate = gate.grad;
  return weights;
}

MoeLayer make_moe(const MoeSpec& spec, const ParameterStore& store, Index layer,
                  const RoutingSettings& routing) {
  const Parameter& gate_up = store.find(spec.prefix + "experts.gate_up_proj");
  const Parameter& down = store.find(spec.prefix + "experts.down_proj");
  const Parameter& router = store.find(spec.prefix + "gate.weight");
  RouterSettings settings = spec.router;
  if (spec.correction_bias)
    settings.correction_bias = store.find(spec.prefix + "gate.e_score_correction_bias").value.flat();
  MoeWeights weights{
      .router = router.value,
      .d_router = router.grad,
      .experts = {.experts = gate_up.spec.groups,
                  .gate_up = gate_up.value,
                  .down = down.value,
                  .d_gate_up = gate_up.grad,
                  .d_down = down.grad,
                  .activation = spec.activation,
                  .sums = store.sums(Placement::kExperts),
                  .adapters = {adapter_of(store, gate_up.spec.name), adapter_of(store, down.spec.name)},
                  .gate_up_halves = gate_up.halves,
                  .down_halves = down.halves,
                  .d_gate_up_halves = gate_up.grad_halves,
                  .d_down_halves = down.grad_halves},
      .sums = store.sums(Placement::kWorld),
      .router_adapter = adapter_of(store, router.spec.name)};
  if (spec.expert_bias)
    weights.experts.biases = biases_of(store, gate_up.spec.groups, spec.prefix + "experts.gate_up_proj_bias",
                                       spec.prefix + "experts.down_proj_bias");
  if (spec.router_bias) {
    const Parameter& bias = store.find(spec.prefix + "gate.bias");
    weights.router_bias = bias.value.flat();
    if (!bias.spec.frozen) weights.d_router_bias = bias.grad.flat();
  }
  if (spec.shared) weights.shared = shared_weights(spec, store);
  return MoeLayer(weights, settings, layer, routing);
}

std::variant<MoeLayer, MlpLayer> make_feed_forward(const LayerSpec& spec, const ParameterStore& store,
                                                   Index layer, const RoutingSettings& routing) {
  if (spec.moe) return make_moe(*spec.moe, store, layer, routing);
  return MlpLayer(spec.mlp.value(), store);
}

std::optional<Norm> make_norm(const LayerSpec& spec, const ParameterStore& store) {
  if (!spec.feed_forward_norm) return std::nullopt;
  return Norm::of(store, *spec.feed_forward_norm);
}

}  // namespace

DecoderLayer::DecoderLayer(const LayerSpec& spec, const ParameterStore& store, Index layer,
                           const RoutingSettings& routing)
    : mixer_(spec.mixer, spec.mixer_norm, spec.mixer_output_norm, store, spec.residual_scale),
      norm_(make_norm(spec, store)),
      feed_forward_(make_feed_forward(spec, store, layer, routing)),
      branch_output_(BranchOutput::of(store, spec.feed_forward_output_norm, spec.residual_scale)) {}

void swap(DecoderLayer& layer, LayerActivations& other) {
  layer.mixer_.swap_activations(other.mixer);
  std::swap(layer.middle_, other.middle);
  std::swap(layer.normed_, other.normed);
  layer.inv_rms_.swap(other.inv_rms);
}

void swap(DecoderLayer& layer, LayerNormed& other) {
  layer.mixer_.swap_normed(other.mixer);
  std::swap(layer.normed_, other.feed_forward);
}

void DecoderLayer::keep_middle(ConstMatrixView hidden) {
  middle_.reshape_uninitialised(hidden.rows, hidden.cols);
  copy(hidden, middle_);
}

void DecoderLayer::normalise(const LayerContext& c) {
  if (!norm_) return;
  normed_.reshape_uninitialised(middle_.rows(), middle_.cols());
  norm_->forward(c.kernels.rmsnorm, middle_, normed_, inv_rms_);
}

void DecoderLayer::forward(const LayerContext& c, MixerCache* cache, MatrixView hidden,
                           RouterStatistics& statistics) {
  const Lent normed(*this, c.workspace.normed, c.recompute == Recompute::kExperts);
  const Lent block(*this, c.workspace.activations, c.recompute == Recompute::kBlock);
  c.clock.enter(Phase::kAttention);
  if (cache != nullptr) {
    mixer_.forward_cached(c.kernels, c.mixer, *cache, hidden);
  } else {
    mixer_.forward(c.kernels, c.mixer, hidden);
  }
  c.clock.enter(Phase::kDense);
  keep_middle(hidden);
  normalise(c);
  if (!branch_output_) return add_feed_forward(c, hidden, statistics);
  const MatrixView output = branch_output_->input(hidden.rows, hidden.cols);
  fill(output, 0.0f);
  add_feed_forward(c, output, statistics);
  branch_output_->forward(c.kernels.rmsnorm, hidden);
}

void DecoderLayer::add_feed_forward(const LayerContext& c, MatrixView output, RouterStatistics& statistics) {
  if (auto* moe = std::get_if<MoeLayer>(&feed_forward_)) {
    c.experts_needed();
    moe->forward(c.moe, feed_forward_input(), output, statistics);
  } else {
    std::get<MlpLayer>(feed_forward_)
        .forward(c.kernels, feed_forward_input(), output, c.workspace.mlp, c.recompute != Recompute::kNone);
  }
}

void DecoderLayer::make_again(const LayerContext& c) {
  c.clock.enter(Phase::kAttention);
  const ConstMatrixView input = mixer_.input();
  Matrix& hidden = c.workspace.hidden;
  hidden.reshape_uninitialised(input.rows, input.cols);
  copy(input, hidden);
  mixer_.forward(c.kernels, c.mixer, hidden);
  keep_middle(hidden);
}

void DecoderLayer::backward(const LayerContext& c, const RouterLossGradient& router_losses,
                            MatrixView d_hidden) {
  const Lent normed(*this, c.workspace.normed, c.recompute == Recompute::kExperts);
  const Lent block(*this, c.workspace.activations, c.recompute == Recompute::kBlock);
  if (c.recompute == Recompute::kBlock) make_again(c);
  c.clock.enter(Phase::kDense);
  if (c.recompute != Recompute::kNone) normalise(c);
  Matrix& d_normed = c.workspace.d_normed;
  d_normed.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
  if (branch_output_) {
    c.clock.enter(Phase::kDense);
    Matrix& d_output = c.workspace.d_output;
    d_output.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
    branch_output_->backward(c.kernels.rmsnorm, d_hidden, d_output);
    backward_feed_forward(c, router_losses, d_output, d_normed);
  } else {
    backward_feed_forward(c, router_losses, d_hidden, d_normed);
  }
  if (norm_) norm_->backward(c.kernels.rmsnorm, d_normed, middle_, inv_rms_, d_normed);
  add(d_normed, d_hidden);
  c.clock.enter(Phase::kAttention);
  if (c.recompute == Recompute::kExperts) mixer_.make_normed_again(c.kernels);
  mixer_.backward(c.kernels, c.mixer, d_hidden, c.workspace.mixer);
}

void DecoderLayer::backward_feed_forward(const LayerContext& c, const RouterLossGradient& router_losses,
                                         ConstMatrixView d_output, MatrixView d_normed) {
  if (auto* moe = std::get_if<MoeLayer>(&feed_forward_)) {
    moe->backward(c.moe, feed_forward_input(), router_losses, d_output, d_normed);
    c.experts_done();
    c.clock.enter(Phase::kDense);
  } else {
    c.clock.enter(Phase::kDense);
    std::get<MlpLayer>(feed_forward_)
        .backward(c.kernels, feed_forward_input(), d_output, d_normed, c.workspace.mlp,
                  c.recompute != Recompute::kNone);
  }
}

double DecoderWorkspace::bytes_of(const LayerSpec& layer, Index tokens) {
  const auto d_output = [&](const auto& norm) {
    return norm || layer.residual_scale != 1 ? layer.hidden_size : 0;
  };
  return rows_bytes(tokens, {layer.hidden_size, d_output(layer.mixer_output_norm), layer.hidden_size,
                             d_output(layer.feed_forward_output_norm)});
}

double DecoderLayer::bytes_of(const LayerSpec& layer, Index tokens) {
  const auto branch_output = [&](const auto& norm) {
    return BranchOutput::bytes_of(norm, layer.residual_scale, tokens, layer.hidden_size);
  };
  return rows_bytes(tokens, {layer.hidden_size}) + branch_output(layer.mixer_output_norm) +
         branch_output(layer.feed_forward_output_norm);
}

}  // namespace moeloom
