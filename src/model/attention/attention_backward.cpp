#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include "attention/attention_block.hpp"
#include "parts/softmax.hpp"

namespace moeloom {
namespace attention {
namespace {

/// query and d_context of a block twice: as the left side of one product and as the right side of another.
struct BackwardMemory {
  Panels keys;         // [head_dim, keys], scaled
  Panels values;       // [value_dim, keys]
  Panels keys_by_row;  // [keys, head_dim], scaled
  MatrixView d_key;    // [keys, head_dim], padded columns; without the scale
  MatrixView d_value;  // [keys, value_dim], padded columns
  MatrixView query;    // [block, head_dim]
  MatrixView d_context;
  Panels packed_query;
  Panels packed_d_context;
  MatrixView probabilities;  // [block, keys]
  MatrixView d_scores;
  MatrixView d_query;  // [block, head_dim], padded columns

  static Index floats(const AttentionShape& s) {
    const Index head = padded_columns(s.head_dim);
    const Index value = padded_columns(s.value_size());
    return Pieces::rounded(Panels::floats(s.head_dim, s.key_length)) +
           Pieces::rounded(Panels::floats(s.value_size(), s.key_length)) +
           2 * Pieces::rounded(s.key_length * head) + Pieces::rounded(s.key_length * value) +
           Pieces::rounded(kBlockQueries * s.head_dim) + Pieces::rounded(kBlockQueries * s.value_size()) +
           2 * Pieces::rounded(kBlockQueries * head) + Pieces::rounded(kBlockQueries * value) +
           2 * Pieces::rounded(kBlockQueries * most_scores(s));
  }
  /// Floats of one query's scores.
  static Index most_scores(const AttentionShape& s) {
    return score_stride(std::min(s.key_length, most_visible(s) + kBlockQueries + kPanelColumns));
  }
  BackwardMemory(const AttentionShape& s, float* memory) {
    Pieces pieces(memory);
    keys = pieces.panels(s.head_dim, s.key_length);
    values = pieces.panels(s.value_size(), s.key_length);
    keys_by_row = pieces.panels(s.key_length, s.head_dim);
    d_key = pieces.matrix(s.key_length, padded_columns(s.head_dim));
    d_value = pieces.matrix(s.key_length, padded_columns(s.value_size()));
    query = pieces.matrix(kBlockQueries, s.head_dim);
    d_context = pieces.matrix(kBlockQueries, s.value_size());
    packed_query = pieces.panels(kBlockQueries, s.head_dim);
    packed_d_context = pieces.panels(kBlockQueries, s.value_size());
    probabilities = pieces.matrix(kBlockQueries, most_scores(s));
    d_scores = pieces.matrix(kBlockQueries, most_scores(s));
    d_query = pieces.matrix(kBlockQueries, padded_columns(s.head_dim));
  }
};

struct Backward {
  const AttentionShape& shape;
  ConstMatrixView query;
  ConstMatrixView key;
  ConstMatrixView value;
  ConstMatrixView context;
  ConstMatrixView log_sum_exp;
  ConstMatrixView d_context;
  MatrixView d_query;
  MatrixView d_key;
  MatrixView d_value;

  void task(Index sequence, Index kv_head, BackwardMemory& memory) const;
  void block(const QueryBlock& block, BackwardMemory& memory) const;
  void take_rows(const QueryBlock& block, BackwardMemory& memory) const;
  void score_gradients(const QueryBlock& block, Index first_key, MatrixView scores,
                       MatrixView d_scores) const;
};

/// scores -> probabilities, d_scores: gradients of the probabilities -> of the scores. The softmax's backward
/// is p (dp - <p, dp>), and <p, dp> over keys equals <context, d_context> over the head's columns.
void Backward::score_gradients(const QueryBlock& block, Index first_key, MatrixView scores,
                               MatrixView d_scores) const {
  const ConstMatrixView contexts = block.of(shape, context, shape.value_size());
  const ConstMatrixView d_contexts = block.of(shape, d_context, shape.value_size());
  for (Index i = 0; i < block.rows; ++i) {
    const Stretch visible = visible_keys(shape, block.begin + i).after(first_key);
    const Index whole = whole_vectors(visible.end);
    const float mean = ordered_dot(contexts.row(i), d_contexts.row(i), shape.value_size());
    float* p = scores.row(i);
    float* dp = d_scores.row(i);
    softmax::exp_shifted(p, whole, log_sum_exp(block.first_row(shape) + i, block.head));
    for (Index j = 0; j < whole; ++j) dp[j] = p[j] * (dp[j] - mean);
    for (float* row : {p, dp}) {
      std::fill(row, row + visible.begin, 0.0f);
      std::fill(row + visible.end, row + scores.cols, 0.0f);
    }
  }
}

void Backward::take_rows(const QueryBlock& block, BackwardMemory& memory) const {
  const ConstMatrixView queries = block.of(shape, query, shape.head_dim);
  const ConstMatrixView d_contexts = block.of(shape, d_context, shape.value_size());
  copy_scaled(queries, 1.0f, memory.query);
  copy_scaled(d_contexts, 1.0f, memory.d_context);
  pack(queries, 1.0f, memory.packed_query);
  pack(d_contexts, 1.0f, memory.packed_d_context);
}

void Backward::block(const QueryBlock& block, BackwardMemory& m) const {
  const Stretch range = panels_of(visible_keys(shape, block.begin, block.begin + block.rows));
  const Index keys = range.size();
  const MatrixView scores = m.probabilities.rows_from(0, block.rows).cols_from(0, padded_columns(keys));
  const MatrixView d_scores = m.d_scores.rows_from(0, block.rows).cols_from(0, padded_columns(keys));
  const MatrixView d_queries = m.d_query.rows_from(0, block.rows);

  take_rows(block, m);
  multiply(as_is(m.query), shape.head_dim, m.keys.cols_after(range.begin), scores, Write::kReplace);
  multiply(as_is(m.d_context), shape.value_size(), m.values.cols_after(range.begin), d_scores,
           Write::kReplace);
  score_gradients(block, range.begin, scores, d_scores);
  multiply(transposed(scores), block.rows, m.packed_d_context, m.d_value.rows_from(range.begin, keys),
           Write::kAdd);
  multiply(transposed(d_scores), block.rows, m.packed_query, m.d_key.rows_from(range.begin, keys),
           Write::kAdd);
  multiply(as_is(d_scores), keys, m.keys_by_row.rows_after(range.begin), d_queries, Write::kReplace);
  copy_scaled(d_queries.cols_from(0, shape.head_dim), 1.0f, block.of(shape, d_query, shape.head_dim));
}

void Backward::task(Index sequence, Index kv_head, BackwardMemory& memory) const {
  const ConstMatrixView keys = keys_of(shape, key, sequence, kv_head, shape.head_dim);
  const float scale = score_scale(shape);
  pack_transposed(keys, scale, memory.keys);
  pack_transposed(keys_of(shape, value, sequence, kv_head, shape.value_size()), 1.0f, memory.values);
  pack(keys, scale, memory.keys_by_row);
  std::fill_n(memory.d_key.data, memory.d_key.size(), 0.0f);
  std::fill_n(memory.d_value.data, memory.d_value.size(), 0.0f);
  const Index group = group_size(shape);
  for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (Index first = 0; first < shape.query_length; first += kBlockQueries)
      block({head, sequence, first, std::min(kBlockQueries, shape.query_length - first)}, memory);
  copy_scaled(memory.d_key.cols_from(0, shape.head_dim), scale,
              keys_of(shape, d_key, sequence, kv_head, shape.head_dim));
  copy_scaled(memory.d_value.cols_from(0, shape.value_size()), 1.0f,
              keys_of(shape, d_value, sequence, kv_head, shape.value_size()));
}

void backward_segments(const AttentionShape& shape, const Backward& all) {
  const Index floats = BackwardMemory::floats(shape_of_segment(shape, longest_segment(shape)));
  Matrix memory = Matrix::uninitialised(threads(), floats);
  parallel_for((std::ssize(shape.segment_offsets) - 1) * shape.kv_heads, [&](Index task) {
    const Stretch rows = segment(shape, task / shape.kv_heads);
    const AttentionShape alone = shape_of_segment(shape, rows.size());
    const Backward backward{alone,
                            rows_of(rows, all.query),
                            rows_of(rows, all.key),
                            rows_of(rows, all.value),
                            rows_of(rows, all.context),
                            rows_of(rows, all.log_sum_exp),
                            rows_of(rows, all.d_context),
                            rows_of(rows, all.d_query),
                            rows_of(rows, all.d_key),
                            rows_of(rows, all.d_value)};
    BackwardMemory mine(alone, memory.row(thread_index()));
    backward.task(0, task % shape.kv_heads, mine);
  });
}

}  // namespace
}  // namespace attention

void attention_backward(const AttentionShape& shape, const ConstAttentionHeads& heads,
                        ConstMatrixView context, ConstMatrixView log_sum_exp, ConstMatrixView d_context,
                        const AttentionHeads& d_heads) {
  using namespace attention;
  require(shape.query_length == shape.key_length, "attention backward needs a query for every key");
  check(shape, heads, context, log_sum_exp);
  check(shape, d_heads, d_context, log_sum_exp);
  const auto& [query, key, value] = heads;
  const auto& [d_query, d_key, d_value] = d_heads;
  const Backward backward{shape, query, key, value, context, log_sum_exp, d_context, d_query, d_key, d_value};
  if (!shape.segment_offsets.empty()) return backward_segments(shape, backward);
  Matrix memory = Matrix::uninitialised(threads(), BackwardMemory::floats(shape));
  parallel_for(shape.sequences * shape.kv_heads, [&](Index task) {
    BackwardMemory mine(shape, memory.row(thread_index()));
    backward.task(task / shape.kv_heads, task % shape.kv_heads, mine);
  });
}

}  // namespace moeloom
