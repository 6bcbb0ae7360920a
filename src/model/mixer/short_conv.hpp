// The short convolution of LFM2: a token's features times gates that its own projection gives, before and
// behind a causal convolution over a few tokens.
#pragma once

#include "model/mixer/convolution.hpp"
#include "model/mixer/recurrent_state.hpp"
#include "model/parts/layer_spec.hpp"
#include "model/parts/mixer_context.hpp"
#include "moeloom/kernels/registry.hpp"

namespace moeloom {

struct ShortConvWorkspace {
  Matrix d_mixed;
  Matrix d_projected;

  static double bytes_of(const ShortConvSpec& spec, Index tokens) {
    return rows_bytes(tokens, {spec.hidden_size, 3 * spec.hidden_size});
  }
};

/// What a ShortConv keeps from forward to backward.
struct ShortConvActivations {
  Matrix projected;  // [T, 3 D]
  Matrix mixed;      // [T, D], what out_proj reads

  static double bytes_of(const ShortConvSpec& spec, Index tokens) {
    return rows_bytes(tokens, {3 * spec.hidden_size, spec.hidden_size});
  }
};

/// [B, C, X] = in_proj x; output = out_proj(C * conv(B * X)).
class ShortConv {
 public:
  using Cache = RecurrentState;
  using Workspace = ShortConvWorkspace;

  /// Throws ShapeError unless the parameters have the shapes of the specification.
  ShortConv(const ShortConvSpec& spec, const ParameterStore& store);

  /// input [T, D] -> output [T, D], written or added to.
  void forward(const KernelTable& kernels, const MixerContext& context, ConstRows input, MatrixView output,
               Write mode);
  RecurrentState make_cache(Index capacity) const;
  /// The same for the next positions of one sequence. Keeps nothing for a backward.
  void forward_cached(const KernelTable& kernels, const MixerContext& context, RecurrentState& state,
                      ConstRows input, MatrixView output, Write mode);
  /// Of the last forward: d_output [T, D] -> d_input [T, D], replaced.
  void backward(const KernelTable& kernels, const MixerContext& context, ConstRows input,
                ConstMatrixView d_output, MatrixView d_input, ShortConvWorkspace& workspace);
  void swap_activations(ShortConvActivations& other) { std::swap(saved_, other); }

 private:
  /// `before` and `after`: of the kernel.
  void mix(const KernelTable& kernels, std::span<const Index> segments, ConstRows input,
           ConstMatrixView before, MatrixView after);

  Linear in_;
  Linear out_;
  Convolution convolution_;
  ShortConvActivations saved_;
};

}  // namespace moeloom
