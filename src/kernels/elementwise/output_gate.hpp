// A gate on attention's output: y = x * function(gate), a number of the gate an element (Qwen3-Next, AFMoE)
// or a head (Laguna).
#pragma once

#include "moeloom/tensor/rows.hpp"

namespace moeloom {

enum class GateFunction { kSigmoid, kSoftplus };

/// x, y [T, D], gate [T, G]: each number of it multiplies D / G columns. As bf16, y is rounded to nearest,
/// ties to even. Throws ShapeError unless G divides D.
void output_gate_forward(GateFunction function, ConstMatrixView x, ConstMatrixView gate, Rows y);

/// dy -> dx [T, D] and d_gate [T, G], both replaced; dx may be dy.
void output_gate_backward(GateFunction function, ConstMatrixView dy, ConstMatrixView x, ConstMatrixView gate,
                          MatrixView dx, MatrixView d_gate);

}  // namespace moeloom
