// The gated activation: activated = row_scale * act(gate) * up, forward and backward. With silu it is SwiGLU,
// with gelu GeGLU (Shazeer 2020). No collective.
//
// Inside an expert row_scale is the row's routing weight. Applied here, before the down projection, combine
// becomes a plain sum, and the weight's gradient is a dot product that the backward pass has at hand:
// d_row_scale = <d_activated, act(gate) * up>, without the expert's output.
#pragma once

#include "moeloom/tensor/rows.hpp"

#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace moeloom {

/// What row_scale multiplies: the result, or gate and up (Llama 4: an expert sees weight * x, and its first
/// product is linear). Then d_row_scale = <d_gate', gate> + <d_up', up>, ' of the scaled ones.
enum class RowScaleOn { kResult, kInputs };

/// silu(x) = x sigmoid(x); gelu by tanh (Hendrycks and Gimpel 2016), and exactly by erf.
enum class Activation { kSilu, kGeluTanh, kGelu };

/// By its name in a config.json: silu or swish; gelu_pytorch_tanh or gelu_new (one formula); gelu (exact);
/// none for any other.
std::optional<Activation> activation_named(std::string_view hidden_act);

/// act and what some families add to it; by default plain act(gate) * up.
struct GatedActivation {
  Activation act = Activation::kSilu;
  /// In [0, 1). Above 0 the gate is first replaced by max(0, gate - (mean + z deviation)), mean and
  /// population deviation over its row, z the normal quantile of sparsity (Gemma3n's Gaussian top-k).
  float sparsity = 0;
  RowScaleOn scale_on = RowScaleOn::kResult;  // kInputs: not with sparsity
  /// GPT-OSS's: the result is act(alpha g) / alpha * (u + up_offset) of g = min(gate, limit), u = up within
  /// [-limit, limit]; with silu that is g sigmoid(alpha g) (u + up_offset). What is clamped has no gradient.
  /// Not with sparsity.
  float alpha = 1;
  float limit = std::numeric_limits<float>::infinity();
  float up_offset = 0;

  /// Whether gate and up go into act(gate) * up as they are.
  bool takes_inputs_as_they_are() const {
    return scale_on == RowScaleOn::kResult && alpha == 1 && limit == std::numeric_limits<float>::infinity() &&
           up_offset == 0;
  }
};

/// Throws ShapeError for settings that exclude each other, or that are out of their range.
void check_settings(const GatedActivation& activation);

/// What a backward writes: d_gate_up [R, 2F], d_row_scale [R] (empty if row_scale is), and activated [R, F]
/// again, which the down projection's weight gradient needs and forward did not keep.
struct GatedGradients {
  Rows d_gate_up;
  std::span<float> d_row_scale;
  Rows activated;
};

/// R rows, F columns. Results are computed in fp32 and rounded where the rows to be written are bf16, as a
/// bf16 product would round them: to nearest, ties to even. All throw ShapeError for shapes that do not fit
/// and settings that exclude each other. R may be 0.
struct SwigluKernel {
  /// gate_up [R, 2F] (gate first), row_scale [R] or empty (1) -> activated [R, F].
  void (*forward)(const GatedActivation& activation, ConstMatrixView gate_up,
                  std::span<const float> row_scale, Rows activated);
  /// d_activated [R, F] -> results, all replaced. d_gate_up may be gate_up itself, and d_activated the same
  /// memory as activated; memory of bf16 rows is shared with nothing. The gradient of a sparsity includes
  /// that of its mean and deviation.
  void (*backward)(const GatedActivation& activation, ConstMatrixView gate_up,
                   std::span<const float> row_scale, ConstMatrixView d_activated,
                   const GatedGradients& results);
};

/// Plain loops; what the fused kernel is tested against.
SwigluKernel reference_swiglu();
/// One vectorised pass (sparsity looks at the gate's row a few times while it is in the cache), threaded over
/// rows; a row's result does not depend on the rows beside it.
SwigluKernel fused_swiglu();

}  // namespace moeloom
