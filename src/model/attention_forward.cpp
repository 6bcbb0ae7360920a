#include "moeloom/base/parallel.hpp"

#include <cmath>

#include "attention_block.hpp"
#include "softmax.hpp"

namespace moeloom {
namespace attention {
namespace {

/// Queries of a task: enough to pay for packing the keys, few enough to share one long sequence.
constexpr Index kTaskQueries = 12 * kBlockQueries;

struct ForwardMemory {
  Panels keys;        // [head_dim, keys], scaled
  Panels values;      // [keys, head_dim]
  MatrixView query;   // [block, head_dim]
  MatrixView scores;  // [block, keys]
  MatrixView context;

  static Index floats(const AttentionShape& s) {
    return Pieces::rounded(Panels::floats(s.head_dim, s.key_length)) +
           Pieces::rounded(Panels::floats(s.key_length, s.head_dim)) +
           Pieces::rounded(kBlockQueries * s.head_dim) +
           Pieces::rounded(kBlockQueries * score_stride(s.key_length)) +
           Pieces::rounded(kBlockQueries * padded_columns(s.head_dim));
  }
  ForwardMemory(const AttentionShape& s, float* memory) {
    Pieces pieces(memory);
    keys = pieces.panels(s.head_dim, s.key_length);
    values = pieces.panels(s.key_length, s.head_dim);
    query = pieces.matrix(kBlockQueries, s.head_dim);
    scores = pieces.matrix(kBlockQueries, score_stride(s.key_length));
    context = pieces.matrix(kBlockQueries, padded_columns(s.head_dim));
  }
};

struct Forward {
  const AttentionShape& shape;
  ConstMatrixView query;
  ConstMatrixView key;
  ConstMatrixView value;
  MatrixView context;
  MatrixView log_sum_exp;

  void task(Index sequence, Index kv_head, Index begin, Index end, ForwardMemory& memory) const;
  void block(const QueryBlock& block, ForwardMemory& memory) const;
};

/// Scores of one query -> e^(score - largest), zero where the query must not look; returns 1 / their sum.
/// What it must not see is first overwritten by a score that it may, so that the passes go over whole
/// vectors.
float softmax_row(float* scores, Index visible, Index padded, float& log_sum_exp) {
  const Index whole = whole_vectors(visible);
  std::fill(scores + visible, scores + whole, scores[0]);
  const float largest = softmax::maximum(scores, whole);
  softmax::exp_shifted(scores, whole, largest);
  std::fill(scores + visible, scores + padded, 0.0f);
  const float sum = softmax::sum(scores, whole);
  log_sum_exp = largest + std::log(sum);
  return 1.0f / sum;
}

void Forward::block(const QueryBlock& block, ForwardMemory& memory) const {
  const Index keys = visible_keys(shape, block.begin + block.rows - 1);
  const MatrixView queries = memory.query.rows_from(0, block.rows);
  const MatrixView scores = memory.scores.rows_from(0, block.rows).cols_from(0, padded_columns(keys));
  const MatrixView sums = memory.context.rows_from(0, block.rows);
  float inverse_sums[kBlockQueries];

  copy_scaled(block.of(shape, query), 1.0f, queries);
  multiply(as_is(queries), shape.head_dim, memory.keys, scores, Write::kReplace);
  for (Index i = 0; i < block.rows; ++i) {
    inverse_sums[i] = softmax_row(scores.row(i), visible_keys(shape, block.begin + i), scores.cols,
                                  log_sum_exp(block.first_row(shape) + i, block.head));
  }
  multiply(as_is(scores), keys, memory.values, sums, Write::kReplace);
  const MatrixView target = block.of(shape, context);
  for (Index i = 0; i < block.rows; ++i)
    copy_scaled(sums.row(i), inverse_sums[i], shape.head_dim, target.row(i));
}

void Forward::task(Index sequence, Index kv_head, Index begin, Index end, ForwardMemory& memory) const {
  const Index keys = visible_keys(shape, end - 1);
  pack_transposed(keys_of(shape, key, sequence, kv_head).rows_from(0, keys), score_scale(shape), memory.keys);
  pack(keys_of(shape, value, sequence, kv_head).rows_from(0, keys), 1.0f, memory.values);
  const Index group = group_size(shape);
  for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (Index first = begin; first < end; first += kBlockQueries)
      block({head, sequence, first, std::min(kBlockQueries, end - first)}, memory);
}

}  // namespace
}  // namespace attention

void attention_forward(const AttentionShape& shape, ConstMatrixView query, ConstMatrixView key,
                       ConstMatrixView value, MatrixView context, MatrixView log_sum_exp) {
  using namespace attention;
  check(shape, query, key, value, context, log_sum_exp);
  const Forward forward{shape, query, key, value, context, log_sum_exp};
  const Index tasks_per_head = ceil_div(shape.query_length, kTaskQueries);
  Matrix memory = Matrix::uninitialised(threads(), ForwardMemory::floats(shape));
  parallel_for(shape.sequences * shape.kv_heads * tasks_per_head, [&](Index task) {
    const Index begin = task % tasks_per_head * kTaskQueries;
    const Index end = std::min(begin + kTaskQueries, shape.query_length);
    const Index head = task / tasks_per_head;
    ForwardMemory mine(shape, memory.row(thread_index()));
    forward.task(head / shape.kv_heads, head % shape.kv_heads, begin, end, mine);
  });
}

}  // namespace moeloom
