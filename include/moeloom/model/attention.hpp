// Causal grouped-query attention over blocks of queries: memory O(T), never [T, T].
//
// Forward keeps one number a query and head, log(sum(exp(scores))); backward forms the scores again block by
// block (Dao et al. 2022, without the tiling of keys that a CPU's cache does not need).
#pragma once

#include "moeloom/tensor/matrix.hpp"

namespace moeloom {

/// Queries are the last `query_length` of `key_length` positions, of each of `sequences` sequences.
struct AttentionShape {
  Index sequences = 0;
  Index query_length = 0;
  Index key_length = 0;
  Index heads = 0;
  Index kv_heads = 0;
  Index head_dim = 0;
};

/// query [sequences*query_length, heads*head_dim], key and value [sequences*key_length, kv_heads*head_dim] ->
/// context as query, log_sum_exp [sequences*query_length, heads]. Scores are scaled by head_dim^-0.5.
void attention_forward(const AttentionShape& shape, ConstMatrixView query, ConstMatrixView key,
                       ConstMatrixView value, MatrixView context, MatrixView log_sum_exp);

/// For query_length = key_length. d_query, d_key, d_value are replaced. Same bits for any thread count: one
/// task owns one kv head of one sequence.
void attention_backward(const AttentionShape& shape, ConstMatrixView query, ConstMatrixView key,
                        ConstMatrixView value, ConstMatrixView context, ConstMatrixView log_sum_exp,
                        ConstMatrixView d_context, MatrixView d_query, MatrixView d_key, MatrixView d_value);

}  // namespace moeloom
