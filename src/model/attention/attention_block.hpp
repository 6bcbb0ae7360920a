// What attention's forward and backward share: where a head's rows lie, the causal limit, a task's memory.
#pragma once

#include "kernels/tile/block_product.hpp"
#include "model/attention/attention.hpp"
#include "moeloom/base/stretch.hpp"

namespace moeloom::attention {

using namespace block;

/// Queries whose scores are formed at once; a multiple of kTileRows. Larger blocks form more scores that the
/// causal limit then discards, smaller ones read the packed keys more often.
inline constexpr Index kBlockQueries = 24;

/// Throws ShapeError unless every view has the rows and columns that the shape says.
void check(const AttentionShape& shape, const ConstAttentionHeads& heads, ConstMatrixView context,
           ConstMatrixView log_sum_exp);

inline Index group_size(const AttentionShape& shape) {
  return shape.heads / shape.kv_heads;
}

/// The most keys that one query sees.
Index most_visible(const AttentionShape& shape);
/// Keys that some query of [begin, end) of a sequence sees: up to the last query itself, from as far back as
/// the first one's window or chunk reaches.
Stretch visible_keys(const AttentionShape& shape, Index begin, Index end);
inline Stretch visible_keys(const AttentionShape& shape, Index position) {
  return visible_keys(shape, position, position + 1);
}
/// The same keys from the beginning of a panel.
Stretch panels_of(Stretch keys);

/// Floats from one row of scores to the next: a power of two would send the rows to the same cache sets.
constexpr Index score_stride(Index keys) {
  return padded_columns(keys) + kPanelColumns;
}

float score_scale(const AttentionShape& shape);

/// As if a segment of `length` were all there is.
AttentionShape shape_of_segment(const AttentionShape& shape, Index length);
Index longest_segment(const AttentionShape& shape);
/// Rows of a segment.
inline Stretch segment(const AttentionShape& shape, Index number) {
  return {shape.segment_offsets[at(number)], shape.segment_offsets[at(number + 1)]};
}
template <typename T>
BasicView<T> rows_of(Stretch segment, BasicView<T> m) {
  return m.rows_from(segment.begin, segment.size());
}

/// Queries [begin, begin + rows) of one sequence and one head.
struct QueryBlock {
  Index head = 0;
  Index sequence = 0;
  Index begin = 0;
  Index rows = 0;

  Index first_row(const AttentionShape& shape) const { return sequence * shape.query_length + begin; }
  /// This block of a matrix laid out as the query or the context, with `size` columns a head.
  template <typename T>
  BasicView<T> of(const AttentionShape& shape, BasicView<T> m, Index size) const {
    return m.rows_from(first_row(shape), rows).cols_from(head * size, size);
  }
};

/// The keys or values of one sequence and one kv head, with `size` columns a head.
template <typename T>
BasicView<T> keys_of(const AttentionShape& shape, BasicView<T> m, Index sequence, Index kv_head, Index size) {
  return m.rows_from(sequence * shape.key_length, shape.key_length).cols_from(kv_head * size, size);
}

inline void copy_scaled(const float* source, float scale, Index count, float* target) {
  for (Index j = 0; j < count; ++j) target[j] = scale * source[j];
}
/// target = scale * source on the calling thread.
void copy_scaled(ConstMatrixView source, float scale, MatrixView target);

}  // namespace moeloom::attention
