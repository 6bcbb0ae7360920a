// Logits that cannot leave [-cap, cap]: cap tanh(x / cap), and back.
#pragma once

#include "moeloom/tensor/matrix.hpp"

namespace moeloom {

/// x [n] = cap tanh(x / cap), cap > 0.
void soft_cap(float cap, float* x, Index n);
void soft_cap(float cap, double* x, Index n);
/// d [n]: gradient of what is capped -> of what it was before.
void soft_cap_backward(float cap, const float* capped, float* d, Index n);

/// Of rows, shared among the threads.
void soft_cap(float cap, MatrixView x);
void soft_cap_backward(float cap, ConstMatrixView capped, MatrixView d);

}  // namespace moeloom
