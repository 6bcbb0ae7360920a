// The element by element half of the gated delta rule's backward.
#pragma once

#include "delta_rule/delta_chunk.hpp"

namespace moeloom::delta_rule {

ChunkNumbers product_of(const ChunkNumbers& a, const ChunkNumbers& b, float sign = 1);

/// to_i += scale_i product_i; returns scale_i product_i . x_i, the gradient by the logarithm of scale_i.
ChunkNumbers add_scaled(ConstMatrixView product, const ChunkNumbers& scale, ConstMatrixView x, MatrixView to);

/// Lower triangles [kChunk, kChunk].
struct InsideGradients {
  MatrixView by_output, by_delta;  // d_output deltas^T, and d_deltas deltas^T
  MatrixView query_key, key_key;   // gradients, summed over the heads of a group
};
/// Gradients of what passed between the tokens of the chunk: added to those of query_key and key_key, and
/// those by the logarithm of decays.between left in by_output.
void add_inside(const KeyChunk& keys, const Decays& decays, const ChunkNumbers& beta,
                const InsideGradients& d);

/// d loss / d(logarithm of a decay), by what decays.
struct DecayGradient {
  ChunkNumbers of_reads = {};   // of the state before the chunk, by the token that reads
  ChunkNumbers of_writes = {};  // to the state after it, by the token that writes
  float of_state = 0;           // of the state before the chunk that is still there after it
};
/// log_decay of token t stands in every power from before it to it or after it. No term is added to be taken
/// off again, so that a head that forgets fast has a small gradient, not what rounding leaves of large ones.
void decay_gradient(ConstMatrixView by_between, const DecayGradient& by, MatrixView d_log_decay);

/// d_raw from the gradient by y_i = factor_i raw_i, factor_i = scale / sqrt(raw_i . raw_i + eps).
void normalise_backward(ConstMatrixView dy, ConstMatrixView y, const ChunkNumbers& factor, float scale_2,
                        MatrixView d_raw);

}  // namespace moeloom::delta_rule
