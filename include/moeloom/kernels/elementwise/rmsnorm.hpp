// RMSNorm over groups of columns, forward and backward, plain and gated. No collective.
//
// Zhang and Sennrich 2019: y = x * inv_rms * (weight_offset + weight), inv_rms = 1 / sqrt(mean(x^2) + eps)
// over each group of weight.size() columns. A whole row is one group; q and k are normalised per head
// (Qwen3), a row holding one group a head. Gated (Qwen3-Next): that y times silu(gate), all in fp32.
#pragma once

#include "moeloom/tensor/rows.hpp"

#include <span>

namespace moeloom {

/// eps > 0.
struct RmsNormSettings {
  float eps = 1e-6f;
  float weight_offset = 0;  // 1: Gemma's 1 + weight
};

/// What a backward needs: what its forward was given, x as it was before (not where y replaced it), and the
/// inv_rms that it left. Views: what they show must outlive them.
struct NormedRows {
  ConstMatrixView x;
  std::span<const float> weight;
  RmsNormSettings settings;
  std::span<const float> inv_rms;
};

/// T rows, G groups of D columns in each. Work is shared among the rank's threads, and the bits do not depend
/// on how many there are. All throw ShapeError for shapes that do not fit.
struct RmsNormKernel {
  /// x [T, G*D], weight [D] -> y [T, G*D], inv_rms [T*G]. y may be x. As bf16, y is what a bf16 product would
  /// round it to: nearest, ties to even.
  void (*forward)(ConstMatrixView x, std::span<const float> weight, RmsNormSettings settings, Rows y,
                  std::span<float> inv_rms);
  /// dy -> dx (replaced; may be dy), d_weight [D] added to: rows in order, in chunks of kSumChunkRows, the
  /// chunks in order.
  void (*backward)(const NormedRows& normed, ConstMatrixView dy, MatrixView dx, std::span<float> d_weight);
  /// forward() times silu(gate), gate [T, G*D]. y may be x or gate.
  void (*gated_forward)(ConstMatrixView x, ConstMatrixView gate, std::span<const float> weight,
                        RmsNormSettings settings, MatrixView y, std::span<float> inv_rms);
  /// The backward of gated_forward(): as backward(), and d_gate [T, G*D] is replaced and may be gate.
  void (*gated_backward)(const NormedRows& normed, ConstMatrixView gate, ConstMatrixView dy, MatrixView dx,
                         MatrixView d_gate, std::span<float> d_weight);
};

/// Plain loops, one formula a line; what the fused kernel is tested against.
RmsNormKernel reference_rmsnorm();
/// Vectorised, threaded over rows, one read of each input and one write a pass.
RmsNormKernel fused_rmsnorm();

}  // namespace moeloom
