// A gate on attention's output (Qwen3-Next): y = x * sigmoid(gate), element by element.
#pragma once

#include "moeloom/tensor/rows.hpp"

namespace moeloom {

/// All [T, D]; as bf16, y is rounded to nearest, ties to even.
void sigmoid_gate_forward(ConstMatrixView x, ConstMatrixView gate, Rows y);

/// dy -> dx and d_gate, both replaced; dx may be dy.
void sigmoid_gate_backward(ConstMatrixView dy, ConstMatrixView x, ConstMatrixView gate, MatrixView dx,
                           MatrixView d_gate);

}  // namespace moeloom
