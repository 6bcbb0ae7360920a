#include "moeloom/base/parallel.hpp"

#include <cmath>
#include <vector>

#include "attention/attention_block.hpp"
#include "parts/softmax.hpp"

namespace moeloom {
namespace attention {
namespace {

/// Queries of a task: enough to pay for packing the keys, few enough to share one long sequence.
constexpr Index kTaskQueries = 12 * kBlockQueries;

struct ForwardMemory {
  Panels keys;        // [head_dim, keys], scaled
  Panels values;      // [keys, value_dim]
  MatrixView query;   // [block, head_dim]
  MatrixView scores;  // [block, keys]
  MatrixView context;

  /// Keys of the task that sees most of them.
  static Index most_keys(const AttentionShape& s) {
    return std::min(s.key_length, most_visible(s) + kTaskQueries + kPanelColumns);
  }
  static Index floats(const AttentionShape& s) {
    return Pieces::rounded(Panels::floats(s.head_dim, most_keys(s))) +
           Pieces::rounded(Panels::floats(most_keys(s), s.value_size())) +
           Pieces::rounded(kBlockQueries * s.head_dim) +
           Pieces::rounded(kBlockQueries * score_stride(most_keys(s))) +
           Pieces::rounded(kBlockQueries * padded_columns(s.value_size()));
  }
  ForwardMemory(const AttentionShape& s, Index task_keys, float* memory) {
    Pieces pieces(memory);
    keys = pieces.panels(s.head_dim, task_keys);
    values = pieces.panels(task_keys, s.value_size());
    query = pieces.matrix(kBlockQueries, s.head_dim);
    scores = pieces.matrix(kBlockQueries, score_stride(task_keys));
    context = pieces.matrix(kBlockQueries, padded_columns(s.value_size()));
  }
};

struct Forward {
  const AttentionShape& shape;
  ConstMatrixView query;
  ConstMatrixView key;
  ConstMatrixView value;
  MatrixView context;
  MatrixView log_sum_exp;

  void task(Index sequence, Index kv_head, Index begin, Index end, float* memory) const;
  /// first_key: the one that the packed keys begin with.
  void block(const QueryBlock& block, Index first_key, ForwardMemory& memory) const;
};

/// Scores of one query -> e^(score - largest), zero where the query must not look; returns 1 / their sum.
/// A sink adds to that sum and may be the largest. What it must not see is first overwritten by a score that
/// it may, so that the passes go over whole vectors.
float softmax_row(float* scores, Stretch visible, Index padded, const float* sink, float& log_sum_exp) {
  const Index whole = whole_vectors(visible.end);
  std::fill(scores, scores + visible.begin, scores[visible.begin]);
  std::fill(scores + visible.end, scores + whole, scores[visible.begin]);
  float largest = softmax::maximum(scores, whole);
  if (sink != nullptr) largest = std::max(largest, *sink);
  softmax::exp_shifted(scores, whole, largest);
  std::fill(scores, scores + visible.begin, 0.0f);
  std::fill(scores + visible.end, scores + padded, 0.0f);
  float sum = ordered_sum(scores, whole);
  if (sink != nullptr) sum += std::exp(*sink - largest);
  log_sum_exp = largest + std::log(sum);
  return 1.0f / sum;
}

void Forward::block(const QueryBlock& block, Index first_key, ForwardMemory& memory) const {
  const Stretch range = panels_of(visible_keys(shape, block.begin, block.begin + block.rows));
  const Index keys = range.size();
  const Index skipped = range.begin - first_key;
  const MatrixView queries = memory.query.rows_from(0, block.rows);
  const MatrixView scores = memory.scores.rows_from(0, block.rows).cols_from(0, padded_columns(keys));
  const MatrixView sums = memory.context.rows_from(0, block.rows);
  const float* const sink = shape.sinks.empty() ? nullptr : &shape.sinks[at(block.head)];
  float inverse_sums[kBlockQueries];

  copy_scaled(block.of(shape, query, shape.head_dim), 1.0f, queries);
  multiply(as_is(queries), shape.head_dim, memory.keys.cols_after(skipped), scores, Write::kReplace);
  for (Index i = 0; i < block.rows; ++i) {
    const Stretch visible = visible_keys(shape, block.begin + i);
    inverse_sums[i] = softmax_row(scores.row(i), visible.after(range.begin), scores.cols, sink,
                                  log_sum_exp(block.first_row(shape) + i, block.head));
  }
  multiply(as_is(scores), keys, memory.values.rows_after(skipped), sums, Write::kReplace);
  const MatrixView target = block.of(shape, context, shape.value_size());
  for (Index i = 0; i < block.rows; ++i)
    copy_scaled(sums.row(i), inverse_sums[i], shape.value_size(), target.row(i));
}

void Forward::task(Index sequence, Index kv_head, Index begin, Index end, float* space) const {
  const Stretch range = panels_of(visible_keys(shape, begin, end));
  ForwardMemory memory(shape, range.size(), space);
  const ConstMatrixView keys = keys_of(shape, key, sequence, kv_head, shape.head_dim);
  const ConstMatrixView values = keys_of(shape, value, sequence, kv_head, shape.value_size());
  pack_transposed(keys.rows_from(range.begin, range.size()), score_scale(shape), memory.keys);
  pack(values.rows_from(range.begin, range.size()), 1.0f, memory.values);
  const Index group = group_size(shape);
  for (Index head = kv_head * group; head < (kv_head + 1) * group; ++head)
    for (Index first = begin; first < end; first += kBlockQueries)
      block({head, sequence, first, std::min(kBlockQueries, end - first)}, range.begin, memory);
}

/// Queries of one task, of one segment.
struct SegmentQueries {
  Stretch segment;
  Index begin = 0;  // in the segment
};

std::vector<SegmentQueries> cut_segments(const AttentionShape& shape) {
  std::vector<SegmentQueries> parts;
  for (Index s = 0; s + 1 < std::ssize(shape.segment_offsets); ++s)
    for (Index begin = 0; begin < segment(shape, s).size(); begin += kTaskQueries)
      parts.push_back({segment(shape, s), begin});
  return parts;
}

void forward_segments(const AttentionShape& shape, const ConstAttentionHeads& heads, MatrixView context,
                      MatrixView log_sum_exp) {
  const std::vector<SegmentQueries> parts = cut_segments(shape);
  const Index floats = ForwardMemory::floats(shape_of_segment(shape, longest_segment(shape)));
  Matrix memory = Matrix::uninitialised(threads(), floats);
  parallel_for(std::ssize(parts) * shape.kv_heads, [&](Index task) {
    const auto& [rows, begin] = parts[at(task / shape.kv_heads)];
    const AttentionShape alone = shape_of_segment(shape, rows.size());
    const Forward forward{alone,
                          rows_of(rows, heads.query),
                          rows_of(rows, heads.key),
                          rows_of(rows, heads.value),
                          rows_of(rows, context),
                          rows_of(rows, log_sum_exp)};
    forward.task(0, task % shape.kv_heads, begin, std::min(begin + kTaskQueries, rows.size()),
                 memory.row(thread_index()));
  });
}

}  // namespace
}  // namespace attention

void attention_forward(const AttentionShape& shape, const ConstAttentionHeads& heads, MatrixView context,
                       MatrixView log_sum_exp) {
  using namespace attention;
  check(shape, heads, context, log_sum_exp);
  if (!shape.segment_offsets.empty()) return forward_segments(shape, heads, context, log_sum_exp);
  const Forward forward{shape, heads.query, heads.key, heads.value, context, log_sum_exp};
  const Index tasks_per_head = ceil_div(shape.query_length, kTaskQueries);
  Matrix memory = Matrix::uninitialised(threads(), ForwardMemory::floats(shape));
  parallel_for(shape.sequences * shape.kv_heads * tasks_per_head, [&](Index task) {
    const Index begin = task % tasks_per_head * kTaskQueries;
    const Index end = std::min(begin + kTaskQueries, shape.query_length);
    const Index head = task / tasks_per_head;
    forward.task(head / shape.kv_heads, head % shape.kv_heads, begin, end, memory.row(thread_index()));
  });
}

}  // namespace moeloom
