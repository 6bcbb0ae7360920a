#include "model/mixer/mixer_layer.hpp"

#include <utility>

namespace moeloom {
namespace {

using Mixer = std::variant<AttentionMixer, ShortConv, DeltaNet>;

Mixer mixer_of(const AttentionSpec& spec, const ParameterStore& store) {
  return AttentionMixer(spec, store);
}
Mixer mixer_of(const ShortConvSpec& spec, const ParameterStore& store) {
  return ShortConv(spec, store);
}
Mixer mixer_of(const DeltaNetSpec& spec, const ParameterStore& store) {
  return DeltaNet(spec, store);
}

std::optional<Norm> make_norm(const std::optional<NormSpec>& spec, const ParameterStore& store) {
  if (!spec) return std::nullopt;
  return Norm::of(store, *spec);
}

AttentionWorkspace& part_of(MixerWorkspace& workspace, const AttentionMixer&) {
  return workspace.attention;
}
ShortConvWorkspace& part_of(MixerWorkspace& workspace, const ShortConv&) {
  return workspace.short_conv;
}
DeltaNetWorkspace& part_of(MixerWorkspace& workspace, const DeltaNet&) {
  return workspace.delta_net;
}

AttentionActivations& part_of(MixerActivations& activations, const AttentionMixer&) {
  return activations.attention;
}
ShortConvActivations& part_of(MixerActivations& activations, const ShortConv&) {
  return activations.short_conv;
}
DeltaNetActivations& part_of(MixerActivations& activations, const DeltaNet&) {
  return activations.delta_net;
}

}  // namespace

double MixerWorkspace::bytes_of(const MixerSpec& mixer, Index tokens, Index sequence_length, Index threads) {
  if (const auto* spec = std::get_if<AttentionSpec>(&mixer))
    return AttentionWorkspace::bytes_of(*spec, tokens);
  if (const auto* spec = std::get_if<ShortConvSpec>(&mixer))
    return ShortConvWorkspace::bytes_of(*spec, tokens);
  const auto& spec = std::get<DeltaNetSpec>(mixer);
  return DeltaNetWorkspace::bytes_of(spec, tokens) + DeltaNet::scratch_bytes(spec, sequence_length, threads);
}

double MixerActivations::bytes_of(const MixerSpec& mixer, Index tokens) {
  if (const auto* spec = std::get_if<AttentionSpec>(&mixer))
    return AttentionActivations::bytes_of(*spec, tokens);
  if (const auto* spec = std::get_if<ShortConvSpec>(&mixer))
    return ShortConvActivations::bytes_of(*spec, tokens);
  return DeltaNetActivations::bytes_of(std::get<DeltaNetSpec>(mixer), tokens);
}

MixerLayer::MixerLayer(const MixerSpec& spec, const std::optional<NormSpec>& norm,
                       const std::optional<NormSpec>& output_norm, const ParameterStore& store,
                       float residual_scale)
    : norm_(make_norm(norm, store)),
      mixer_(std::visit([&](const auto& kind) { return mixer_of(kind, store); }, spec)),
      branch_output_(BranchOutput::of(store, output_norm, residual_scale)) {}

ConstRows MixerLayer::normed(const KernelTable& kernels, ConstMatrixView hidden) {
  if (!norm_) return hidden;
  const Rows normed = normed_.reshape_uninitialised(kernels.dense.element, hidden.rows, hidden.cols);
  norm_->forward(kernels.rmsnorm, hidden, normed, inv_rms_);
  return normed;
}

template <typename Mix>
void MixerLayer::add_output(const KernelTable& kernels, MatrixView hidden, const Mix& mix) {
  if (!branch_output_) return mix(hidden, Write::kAdd);
  mix(branch_output_->input(hidden.rows, hidden.cols), Write::kReplace);
  branch_output_->forward(kernels.rmsnorm, hidden);
}

void MixerLayer::forward(const KernelTable& kernels, const MixerContext& context, MatrixView hidden) {
  input_.reshape_uninitialised(hidden.rows, hidden.cols);
  copy(hidden, input_);
  const ConstRows input = normed(kernels, input_);
  add_output(kernels, hidden, [&](MatrixView output, Write mode) {
    std::visit([&](auto& mixer) { mixer.forward(kernels, context, input, output, mode); }, mixer_);
  });
}

MixerCache MixerLayer::make_cache(Index capacity) const {
  return std::visit([&](const auto& mixer) { return MixerCache(mixer.make_cache(capacity)); }, mixer_);
}

void MixerLayer::forward_cached(const KernelTable& kernels, const MixerContext& context, MixerCache& cache,
                                MatrixView hidden) {
  if (hidden.rows == 0) return;
  const ConstRows input = normed(kernels, hidden);
  add_output(kernels, hidden, [&](MatrixView output, Write mode) {
    std::visit(
        [&]<class Mixer>(Mixer& mixer) {
          mixer.forward_cached(kernels, context, std::get<typename Mixer::Cache>(cache), input, output, mode);
        },
        mixer_);
  });
}

ConstMatrixView MixerLayer::output_gradient(const KernelTable& kernels, ConstMatrixView d_hidden,
                                            MixerWorkspace& workspace) const {
  if (!branch_output_) return d_hidden;
  workspace.d_output.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
  branch_output_->backward(kernels.rmsnorm, d_hidden, workspace.d_output);
  return workspace.d_output;
}

void MixerLayer::backward(const KernelTable& kernels, const MixerContext& context, MatrixView d_hidden,
                          MixerWorkspace& workspace) {
  Matrix& d_normed = workspace.d_normed;
  d_normed.reshape_uninitialised(d_hidden.rows, d_hidden.cols);
  const ConstMatrixView d_output = output_gradient(kernels, d_hidden, workspace);
  const ConstRows input = norm_ ? std::as_const(normed_).rows() : ConstRows(input_);
  std::visit(
      [&](auto& mixer) {
        mixer.backward(kernels, context, input, d_output, d_normed, part_of(workspace, mixer));
      },
      mixer_);
  if (norm_) norm_->backward(kernels.rmsnorm, d_normed, input_, inv_rms_, d_normed);
  add(d_normed, d_hidden);
}

void MixerLayer::swap_activations(MixerActivations& other) {
  std::swap(normed_, other.normed);
  inv_rms_.swap(other.inv_rms);
  std::visit([&](auto& mixer) { mixer.swap_activations(part_of(other, mixer)); }, mixer_);
}

}  // namespace moeloom
