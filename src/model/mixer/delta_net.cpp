#include "model/mixer/delta_net.hpp"

#include "moeloom/base/errors.hpp"

#include <array>

namespace moeloom {
namespace {

DeltaRuleShape rule_of(const DeltaNetSpec& spec, std::span<const Index> segments) {
  return {spec.key_heads, spec.value_heads, spec.key_dim, spec.value_dim, segments};
}

}  // namespace

DeltaNet::Numbers DeltaNet::numbers_of(const ParameterStore& store, const std::string& name, Index count) {
  const Parameter& parameter = store.find(name);
  require(parameter.value.size() == count, name + " must have one number a head");
  return {parameter.value.flat(), parameter.grad.flat()};
}

DeltaNet::DeltaNet(const DeltaNetSpec& spec, const ParameterStore& store)
    : spec_(spec),
      in_(Linear::of(store, spec.prefix + "in_proj.weight")),
      out_(Linear::of(store, spec.prefix + "out_proj.weight")),
      convolution_(store, spec.prefix + "conv1d", spec.mixed_width(), spec.taps, false,
                   ConvActivation::kSilu),
      a_log_(numbers_of(store, spec.prefix + "A_log", spec.value_heads)),
      dt_bias_(numbers_of(store, spec.prefix + "dt_bias", spec.value_heads)),
      norm_(Norm::of(store, NormSpec{spec.prefix + "norm.weight", spec.value_dim, spec.norm})) {
  require(in_.out() == spec.projected_width() && out_.in() == spec.value_width(),
          spec.prefix + "in_proj must have the rows of q, k, v, z, b and a, and out_proj the columns of v");
}

double DeltaNet::scratch_bytes(const DeltaNetSpec& spec, Index sequence_length, Index threads) {
  const std::array one_sequence = {Index{0}, sequence_length};
  return array_bytes(delta_rule_backward_bytes(rule_of(spec, one_sequence), threads), 1);
}

DeltaRuleInputs DeltaNet::rule_inputs() const {
  const ConstMatrixView mixed = saved_.mixed.view();
  return {mixed.cols_from(0, spec_.key_width()), mixed.cols_from(spec_.key_width(), spec_.key_width()),
          spec_.values_of(mixed), saved_.log_decay, saved_.beta};
}

void DeltaNet::project(const KernelTable& kernels, const MixerContext& context, ConstRows input) {
  const Index rows = input.rows();
  saved_.projected.reshape_uninitialised(rows, in_.out());
  saved_.mixed.reshape_uninitialised(rows, spec_.mixed_width());
  saved_.beta.reshape_uninitialised(rows, spec_.value_heads);
  saved_.log_decay.reshape_uninitialised(rows, spec_.value_heads);
  saved_.read.reshape_uninitialised(rows, spec_.value_width());
  in_.forward(kernels.dense, input, saved_.projected);
  context.clear_padding(saved_.projected);  // in_proj has no bias: as if the input were zeros
  delta_gates_forward({a_log_.values, dt_bias_.values}, spec_.b_of(saved_.projected.view()),
                      spec_.a_of(saved_.projected.view()), saved_.beta, saved_.log_decay);
}

void DeltaNet::add_output(const KernelTable& kernels, MatrixView output, Write mode) {
  saved_.normed.reshape_uninitialised(saved_.read.rows(), saved_.read.cols());
  saved_.inv_rms.resize(at(saved_.read.rows() * spec_.value_heads));
  kernels.rmsnorm.gated_forward(saved_.read, spec_.z_of(saved_.projected.view()), norm_.weight,
                                norm_.settings, saved_.normed, saved_.inv_rms);
  out_.forward(kernels.dense, saved_.normed, output, mode);
}

void DeltaNet::forward(const KernelTable& kernels, const MixerContext& context, ConstRows input,
                       MatrixView output, Write mode) {
  const std::vector<Index> segments = context.segments();
  project(kernels, context, input);
  causal_conv_forward(convolution_.over(segments), spec_.mixed_of(saved_.projected.view()), {}, saved_.mixed,
                      {});
  delta_rule_forward(rule_of(spec_, segments), rule_inputs(), {}, saved_.read, delta(), {});
  add_output(kernels, output, mode);
}

RecurrentState DeltaNet::make_cache(Index) const {
  return RecurrentState(convolution_.state_size(), spec_.value_heads, spec_.key_dim * spec_.value_dim);
}

void DeltaNet::forward_cached(const KernelTable& kernels, const MixerContext& context, RecurrentState& state,
                              ConstRows input, MatrixView output, Write mode) {
  state.advance(context.position_ids.front(), input.rows());
  const std::array segments = {Index{0}, input.rows()};
  project(kernels, context, input);
  causal_conv_forward(convolution_.over(segments), spec_.mixed_of(saved_.projected.view()),
                      state.convolution(), saved_.mixed, state.convolution());
  if (input.rows() == 1)
    delta_rule_step(rule_of(spec_, segments), rule_inputs(), state.recurrence(), saved_.read);
  else
    delta_rule_forward(rule_of(spec_, segments), rule_inputs(), state.recurrence(), saved_.read, delta(),
                       state.recurrence());
  add_output(kernels, output, mode);
}

/// d_normed, of what out_proj read, becomes the gradient of what the rule read.
void DeltaNet::backward_norm(const KernelTable& kernels, MatrixView d_normed, MatrixView d_z) const {
  const ConstMatrixView z = spec_.z_of(ConstMatrixView(saved_.projected.view()));
  std::vector<float> nobody_reads(norm_.grad.empty() ? norm_.weight.size() : 0);
  const std::span<float> d_weight = norm_.grad.empty() ? nobody_reads : norm_.grad;
  for_each_leaf(norm_.sums, d_normed.rows, [&](Index first, Index rows) {
    const auto scales =
        std::span(saved_.inv_rms).subspan(at(first * spec_.value_heads), at(rows * spec_.value_heads));
    const MatrixView d_of = d_normed.rows_from(first, rows);
    kernels.rmsnorm.gated_backward(
        {saved_.read.view().rows_from(first, rows), norm_.weight, norm_.settings, scales},
        z.rows_from(first, rows), d_of, d_of, d_z.rows_from(first, rows), d_weight);
    if (norm_.sums != nullptr && !norm_.grad.empty()) norm_.sums->take(norm_.grad);
  });
}

/// The gradients of beta and log_decay, in the places of b and a, become those of b and a.
void DeltaNet::backward_gates(MatrixView d_projected) const {
  const ConstMatrixView projected = saved_.projected.view();
  ExactSums* const sums = in_.sums;
  for_each_leaf(sums, d_projected.rows, [&](Index first, Index rows) {
    const ConstMatrixView of = projected.rows_from(first, rows);
    const MatrixView d_of = d_projected.rows_from(first, rows);
    const MatrixView d_b = spec_.b_of(d_of), d_a = spec_.a_of(d_of);
    delta_gates_backward({a_log_.values, dt_bias_.values}, spec_.b_of(of), spec_.a_of(of), d_b, d_a,
                         {d_b, d_a, a_log_.gradients, dt_bias_.gradients});
    if (sums == nullptr) return;
    sums->take(a_log_.gradients);
    sums->take(dt_bias_.gradients);
  });
}

void DeltaNet::backward(const KernelTable& kernels, const MixerContext& context, ConstRows input,
                        ConstMatrixView d_output, MatrixView d_input, DeltaNetWorkspace& workspace) {
  const std::vector<Index> segments = context.segments();
  Matrix& d_normed = workspace.d_normed;
  d_normed.reshape_uninitialised(saved_.normed.rows(), saved_.normed.cols());
  workspace.d_projected.reshape_uninitialised(saved_.projected.rows(), saved_.projected.cols());
  const MatrixView d_projected = workspace.d_projected;

  out_.backward(kernels.dense, d_output, saved_.normed, d_normed);
  backward_norm(kernels, d_normed, spec_.z_of(d_projected));
  // The gradients of q, k and v take the places of q, k and the deltas.
  const MatrixView mixed = saved_.mixed;
  delta_rule_backward(rule_of(spec_, segments), {rule_inputs(), delta(), {}}, d_normed, {},
                      {.query = mixed.cols_from(0, spec_.key_width()),
                       .key = mixed.cols_from(spec_.key_width(), spec_.key_width()),
                       .value = delta(),
                       .log_decay = spec_.a_of(d_projected),
                       .beta = spec_.b_of(d_projected),
                       .initial_state = {}});
  backward_gates(d_projected);
  convolution_.backward(causal_conv_backward, segments,
                        spec_.mixed_of(ConstMatrixView(saved_.projected.view())), saved_.mixed,
                        spec_.mixed_of(d_projected));
  context.clear_padding(d_projected);
  in_.backward(kernels.dense, d_projected, input, d_input);
}

}  // namespace moeloom
