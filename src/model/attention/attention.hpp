// Causal grouped-query attention, with or without a sliding window, chunks and sinks, over blocks of queries:
// memory O(T), never [T, T].
//
// Forward keeps one number a query and head, log(sum(exp(scores))); backward forms the scores again block by
// block (Dao et al. 2022, without the tiling of keys that a CPU's cache does not need).
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <span>

namespace moeloom {

/// Queries are the last `query_length` of `key_length` positions, of each of `sequences` sequences.
struct AttentionShape {
  Index sequences = 0;
  Index query_length = 0;
  Index key_length = 0;
  Index heads = 0;
  Index kv_heads = 0;
  Index head_dim = 0;   // of queries and keys
  Index value_dim = 0;  // of values and context; 0: head_dim
  Index window = 0;     // a query sees so many keys, itself the last; 0: all before it
  Index chunk = 0;      // a query sees keys of its own chunk of so many positions alone; 0: there are none
  Index first_position = 0;  // of the first key in its sequence, from whose beginning chunks are counted
  float scale = 0.0f;        // of the scores; 0: head_dim^-0.5
  /// [segments + 1] or empty, of all queries of all sequences: a query sees keys of its own segment alone. It
  /// then takes query_length = key_length, and the work is that of the segments by themselves, bit for bit.
  std::span<const Index> segment_offsets = {};
  /// [heads] or empty: p_j = exp(s_j) / (exp(sink) + sum of exp(s)), one sink a head, unscaled (gpt_oss). It
  /// is part of log_sum_exp and of every row, and has no value.
  std::span<const float> sinks = {};

  Index value_size() const { return value_dim > 0 ? value_dim : head_dim; }
};

/// What attention multiplies: query [sequences*query_length, heads*head_dim], key [sequences*key_length,
/// kv_heads*head_dim], value [sequences*key_length, kv_heads*value_dim].
struct ConstAttentionHeads {
  ConstMatrixView query;
  ConstMatrixView key;
  ConstMatrixView value;
};
/// The same to be written, or the gradients of it.
struct AttentionHeads {
  MatrixView query;
  MatrixView key;
  MatrixView value;
  operator ConstAttentionHeads() const { return {query, key, value}; }
};

/// -> context [sequences*query_length, heads*value_dim], log_sum_exp [sequences*query_length, heads]. Keys
/// outside the window or the chunk cost nothing, but for those that another query of a block sees.
void attention_forward(const AttentionShape& shape, const ConstAttentionHeads& heads, MatrixView context,
                       MatrixView log_sum_exp);

/// For query_length = key_length. d_heads are replaced. Same bits for any thread count: one task owns one kv
/// head of one sequence.
void attention_backward(const AttentionShape& shape, const ConstAttentionHeads& heads,
                        ConstMatrixView context, ConstMatrixView log_sum_exp, ConstMatrixView d_context,
                        const AttentionHeads& d_heads);

/// d_sinks [heads] -= the sum over rows of p_sink <p, dp>, p_sink = exp(sink - log_sum_exp), dp the gradient
/// of the probabilities; it has no value, so that <p, dp> is <context, d_context> of the head. Rows in order,
/// in chunks of kSumChunkRows, the chunks in order.
void add_sink_gradients(std::span<const float> sinks, ConstMatrixView context, ConstMatrixView log_sum_exp,
                        ConstMatrixView d_context, std::span<float> d_sinks);

}  // namespace moeloom
