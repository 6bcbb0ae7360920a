#include "model/feed_forward/moe_of_store.hpp"

#include "model/parts/linear.hpp"

#include <algorithm>
#include <string>

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

}  // namespace

MoeLayer moe_of(const MoeSpec& spec, const ParameterStore& store, Index layer,
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
  if (spec.expert_scale) {
    const Parameter& scale = store.find(spec.prefix + "gate.per_expert_scale");
    settings.expert_scale = scale.value.flat();
    if (!scale.spec.frozen) weights.d_expert_scale = scale.grad.flat();
  }
  weights.output_scale = spec.output_scale;
  if (spec.shared) weights.shared = shared_weights(spec, store);
  return MoeLayer(weights, settings, layer, routing);
}

}  // namespace moeloom
