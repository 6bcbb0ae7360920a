// The gated delta rule (Yang, Kautz & Hatamizadeh 2024): linear attention whose state forgets by a gate and
// writes only what it did not yet know.
//
// For each value head, with a state M [key_dim, value_dim] that is zero where a segment begins, q and k
// divided by sqrt(sum of squares + 1e-6), q also by sqrt(key_dim), for each token
//
//   M *= exp(log_decay);  delta = value - M^T k;  M += beta k delta^T;  output = M^T q.
//
// Computed in chunks of 64 tokens, where the deltas of a chunk are the solution of a triangular system: all
// but a few FLOPs are then products of matrices. No sum is over [T, T]: beside its inputs a forward needs one
// state a thread, and a backward one for every chunk of the segment that a thread works on.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <span>

namespace moeloom {

struct DeltaRuleShape {
  Index key_heads = 0;    // of query and key
  Index value_heads = 0;  // a multiple; value head h has key head h / (value_heads / key_heads)
  Index key_dim = 0;
  Index value_dim = 0;
  std::span<const Index> segment_offsets;  // [segments + 1], rising from 0 to T; each has a state of its own

  Index segments() const { return static_cast<Index>(segment_offsets.size()) - 1; }
  Index tokens() const { return segment_offsets.back(); }
  Index group_size() const { return value_heads / key_heads; }
};

/// query, key [T, key_heads*key_dim], as they come from the convolution; value [T, value_heads*value_dim];
/// log_decay, at most 0, and beta [T, value_heads]. They may be columns of one matrix.
struct DeltaRuleInputs {
  ConstMatrixView query;
  ConstMatrixView key;
  ConstMatrixView value;
  ConstMatrixView log_decay;
  ConstMatrixView beta;
};

/// As the inputs; initial_state as in the forward, or empty. All are replaced.
struct DeltaRuleGradients {
  MatrixView query;
  MatrixView key;
  MatrixView value;
  MatrixView log_decay;
  MatrixView beta;
  MatrixView initial_state;
};

/// initial_state [segments*value_heads, key_dim*value_dim], a row the M of one head, or empty for zeros ->
/// output [T, value_heads*value_dim], delta of the same shape, which backward needs and which may be `value`
/// itself, and final_state as initial_state, unless it is empty; it may be initial_state.
/// Threads share segments and key heads; the bits do not depend on how many there are. Throws ShapeError.
void delta_rule_forward(const DeltaRuleShape& shape, const DeltaRuleInputs& inputs,
                        ConstMatrixView initial_state, MatrixView output, MatrixView delta,
                        MatrixView final_state);

/// What a forward was given, but for the values, and its deltas.
struct DeltaRuleSaved {
  DeltaRuleInputs inputs;  // value is not read
  ConstMatrixView delta;
  ConstMatrixView initial_state;
};

/// d_output, and d_final_state or empty -> gradients. Those of query and key may lie over what they belong
/// to, that of value over delta or d_output.
void delta_rule_backward(const DeltaRuleShape& shape, const DeltaRuleSaved& saved, ConstMatrixView d_output,
                         ConstMatrixView d_final_state, const DeltaRuleGradients& gradients);

/// One token of each of several sequences: row s of the inputs and of output [sequences, ...] belongs to the
/// states in rows [s*value_heads, (s + 1)*value_heads) of state, which are brought up to date.
/// shape.segment_offsets is not read.
void delta_rule_step(const DeltaRuleShape& shape, const DeltaRuleInputs& inputs, MatrixView state,
                     MatrixView output);

/// FLOPs of the algorithm's products, a multiply-add being two; of a triangle the half that is not zero. A
/// chunk of n tokens with dk = key_dim, dv = value_dim has, forward, 6 n dk dv + 2 n^2 dv of each value head
/// (predict, read and write the state; the system, what is read inside the chunk) and 2 n^2 dk of each key
/// head (k k^T, q k^T); backward, 14 n dk dv + 4 n^2 dv and 6 n^2 dk, of which 2 n dk dv and 2 n^2 dk
/// recompute.
double delta_rule_forward_flops(const DeltaRuleShape& shape);
double delta_rule_backward_flops(const DeltaRuleShape& shape);

/// Bytes that a backward holds beside its arguments on so many threads: a state for every chunk of the
/// longest segment. A forward holds less.
Index delta_rule_backward_bytes(const DeltaRuleShape& shape, Index threads);

}  // namespace moeloom
