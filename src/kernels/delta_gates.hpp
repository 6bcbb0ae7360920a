// The two gates of a gated delta net (Qwen3-Next), from projections b and a: one each a token and value head.
//
//   beta = sigmoid(b), log_decay = -exp(a_log) softplus(a + dt_bias).
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <span>

namespace moeloom {

struct DeltaGates {
  std::span<const float> a_log;  // [heads]
  std::span<const float> dt_bias;
};

/// b, a [T, heads] -> beta, log_decay [T, heads], which may be b and a.
void delta_gates_forward(const DeltaGates& gates, ConstMatrixView b, ConstMatrixView a, MatrixView beta,
                         MatrixView log_decay);

struct DeltaGateGradients {
  MatrixView b;            // replaced; may be the gradient of beta
  MatrixView a;            // replaced; may be that of log_decay
  std::span<float> a_log;  // both added to: rows in order, in chunks of kSumChunkRows
  std::span<float> dt_bias;
};
/// b and a as the forward read them.
void delta_gates_backward(const DeltaGates& gates, ConstMatrixView b, ConstMatrixView a,
                          ConstMatrixView d_beta, ConstMatrixView d_log_decay,
                          const DeltaGateGradients& gradients);

}  // namespace moeloom
