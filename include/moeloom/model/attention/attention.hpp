// Causal grouped-query attention, with or without a sliding window, over blocks of queries: memory O(T),
// never [T, T].
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
  float scale = 0.0f;   // of the scores; 0: head_dim^-0.5
  /// [segments + 1] or empty, of all queries of all sequences: a query sees keys of its own segment alone. It
  /// then takes query_length = key_length, and the work is that of the segments by themselves, bit for bit.
  std::span<const Index> segment_offsets = {};

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
/// outside the window cost nothing.
void attention_forward(const AttentionShape& shape, const ConstAttentionHeads& heads, MatrixView context,
                       MatrixView log_sum_exp);

/// For query_length = key_length. d_heads are replaced. Same bits for any thread count: one task owns one kv
/// head of one sequence.
void attention_backward(const AttentionShape& shape, const ConstAttentionHeads& heads,
                        ConstMatrixView context, ConstMatrixView log_sum_exp, ConstMatrixView d_context,
                        const AttentionHeads& d_heads);

}  // namespace moeloom
