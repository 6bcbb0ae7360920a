// Causal depthwise convolution over time: each channel by itself, from its last K inputs.
//
//   y[t] = act(bias + sum over j < K of weight[j] x[t - K + 1 + j]), x zero before its segment's first token.
//
// With SiLU it stands before the gated delta rule (Qwen3-Next). The short convolution of LFM2 multiplies what
// goes in and what comes out by columns of the same projection: y = C * conv(B * X).
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <span>

namespace moeloom {

enum class ConvActivation { kNone, kSilu };

struct CausalConv {
  ConstMatrixView weight;                             // [channels, K], the last the newest input's
  std::span<const float> bias;                        // [channels], or empty
  ConvActivation activation = ConvActivation::kNone;  // short_conv_* have none
  std::span<const Index> segment_offsets;             // [segments + 1], rising from 0 to T

  Index channels() const { return weight.rows; }
  Index taps() const { return weight.cols; }
  Index segments() const { return static_cast<Index>(segment_offsets.size()) - 1; }
};

/// Both are added to: rows in order, in chunks of at most kSumChunkRows.
struct CausalConvGradients {
  MatrixView weight;
  std::span<float> bias;  // empty where the convolution has none
};

/// x [T, channels], inputs_before [segments, (K-1)*channels], a segment's K-1 inputs before its first token,
/// the oldest first, or empty for zeros -> y [T, channels] and inputs_after, the same at its end, unless it
/// is empty. y must not be x; inputs_after may be inputs_before. Decoding is a segment a sequence, of one
/// token.
void causal_conv_forward(const CausalConv& conv, ConstMatrixView x, ConstMatrixView inputs_before,
                         MatrixView y, MatrixView inputs_after);
/// Of a forward with no inputs before. dx is replaced and may be dy.
void causal_conv_backward(const CausalConv& conv, ConstMatrixView x, ConstMatrixView dy, MatrixView dx,
                          const CausalConvGradients& gradients);

/// The same with projected [T, 3*channels] = B, C, X; the inputs are those of the convolution, B * X.
void short_conv_forward(const CausalConv& conv, ConstMatrixView projected, ConstMatrixView inputs_before,
                        MatrixView y, MatrixView inputs_after);
/// d_projected is replaced; it must not be projected.
void short_conv_backward(const CausalConv& conv, ConstMatrixView projected, ConstMatrixView dy,
                         MatrixView d_projected, const CausalConvGradients& gradients);

}  // namespace moeloom
