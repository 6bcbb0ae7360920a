#include "model/mixer/short_conv.hpp"

#include "moeloom/base/errors.hpp"

#include <array>

namespace moeloom {

ShortConv::ShortConv(const ShortConvSpec& spec, const ParameterStore& store)
    : in_(Linear::of_module(store, spec.prefix + "in_proj", spec.bias)),
      out_(Linear::of_module(store, spec.prefix + "out_proj", spec.bias)),
      convolution_(store, spec.prefix + "conv", spec.hidden_size, spec.taps, spec.bias,
                   ConvActivation::kNone) {
  require(in_.out() == 3 * spec.hidden_size && out_.in() == spec.hidden_size,
          spec.prefix + "in_proj must give three blocks of hidden_size columns, and out_proj read one");
}

void ShortConv::mix(const KernelTable& kernels, std::span<const Index> segments, ConstRows input,
                    ConstMatrixView before, MatrixView after) {
  saved_.projected.reshape_uninitialised(input.rows(), in_.out());
  saved_.mixed.reshape_uninitialised(input.rows(), out_.in());
  in_.forward(kernels.dense, input, saved_.projected);
  short_conv_forward(convolution_.over(segments), saved_.projected, before, saved_.mixed, after);
}

void ShortConv::forward(const KernelTable& kernels, const MixerContext& context, ConstRows input,
                        MatrixView output, Write mode) {
  mix(kernels, context.segments(), input, {}, {});
  out_.forward(kernels.dense, saved_.mixed, output, mode);
}

RecurrentState ShortConv::make_cache(Index) const {
  return RecurrentState(convolution_.state_size(), 0, 0);
}

void ShortConv::forward_cached(const KernelTable& kernels, const MixerContext& context, RecurrentState& state,
                               ConstRows input, MatrixView output, Write mode) {
  state.advance(context.position_ids.front(), input.rows());
  mix(kernels, std::array{Index{0}, input.rows()}, input, state.convolution(), state.convolution());
  out_.forward(kernels.dense, saved_.mixed, output, mode);
}

void ShortConv::backward(const KernelTable& kernels, const MixerContext& context, ConstRows input,
                         ConstMatrixView d_output, MatrixView d_input, ShortConvWorkspace& workspace) {
  workspace.d_mixed.reshape_uninitialised(saved_.mixed.rows(), saved_.mixed.cols());
  workspace.d_projected.reshape_uninitialised(saved_.projected.rows(), saved_.projected.cols());
  out_.backward(kernels.dense, d_output, saved_.mixed, workspace.d_mixed);
  convolution_.backward(short_conv_backward, context.segments(), saved_.projected, workspace.d_mixed,
                        workspace.d_projected);
  in_.backward(kernels.dense, workspace.d_projected, input, d_input);
}

}  // namespace moeloom
