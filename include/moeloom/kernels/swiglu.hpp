// SwiGLU: activated = row_scale * silu(gate) * up, forward and backward.
//
// Inside an expert row_scale is the row's routing weight. Applied here, before the down projection, combine
// becomes a plain sum, and the weight's gradient is a dot product that the backward pass has at hand:
// d_row_scale = <d_activated, silu(gate) * up>, without the expert's output.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <span>

namespace moeloom {

enum class Activation { kSilu, kGeluTanh, kGelu };

struct GatedActivation {
  Activation act = Activation::kSilu;
  float sparsity = 0;  // Gemma3n's Gaussian top-k on the gate
};

struct SwigluKernel {
  /// gate_up [R, 2F] (gate first), row_scale [R] or empty (1) -> activated [R, F].
  void (*forward)(ConstMatrixView gate_up, std::span<const float> row_scale, MatrixView activated);
  /// -> d_gate_up [R, 2F] (may be gate_up itself), d_row_scale [R] (empty if row_scale is), and activated [R,
  /// F] again, which the down projection's weight gradient needs and forward did not keep. d_activated may be
  /// the same memory as activated.
  void (*backward)(ConstMatrixView gate_up, std::span<const float> row_scale, ConstMatrixView d_activated,
                   MatrixView d_gate_up, std::span<float> d_row_scale, MatrixView activated);
};

SwigluKernel reference_swiglu();
/// One vectorised pass, threaded over rows; a row's result does not depend on the rows beside it.
SwigluKernel fused_swiglu();

}  // namespace moeloom
