// What forward and backward share: a chunk's normalised rows, its decays, and where the rows of a head lie.
#pragma once

#include "kernels/delta_rule.hpp"
#include "moeloom/base/stretch.hpp"

#include <array>

#include "delta_rule/triangles.hpp"

namespace moeloom::delta_rule {

/// Tokens of a chunk: as in the reference, and small enough for the triangles to stay cheap beside the state.
inline constexpr Index kChunk = 64;

/// But for the values.
void check(const DeltaRuleShape& shape, const DeltaRuleInputs& inputs);
void check_segments(const DeltaRuleShape& shape, Index tokens);
/// Of a matrix that lies as the values do, and of states, which may be empty.
void check_values(const DeltaRuleShape& shape, ConstMatrixView values, const char* what);
void check_states(const DeltaRuleShape& shape, ConstMatrixView states, const char* what);

/// A float a token of the chunk.
using ChunkNumbers = std::array<float, kChunk>;

/// Memory for a left side: its rows do not fall into the same cache sets.
inline MatrixView take_rows(Pieces& pieces, Index cols) {
  constexpr Index kApart = 16;
  return pieces.matrix(kChunk, padded_columns(cols) + kApart).cols_from(0, padded_columns(cols));
}
inline Index row_floats(Index cols) {
  return kChunk * (padded_columns(cols) + 16);
}

/// Rows [begin, end) of a sequence are one chunk, of one segment.
inline Stretch chunk_rows(Stretch segment, Index chunk) {
  const Index begin = segment.begin + chunk * kChunk;
  return {begin, std::min(begin + kChunk, segment.end)};
}
/// Those of the chunks around, none at either end of the segment.
inline Stretch rows_after(Stretch segment, Stretch rows) {
  return {rows.end, std::min(rows.end + kChunk, segment.end)};
}
inline Stretch rows_before(Stretch segment, Stretch rows) {
  return {std::max(rows.begin - kChunk, segment.begin), rows.begin};
}
inline Index chunks_of(Stretch segment) {
  return ceil_div(segment.size(), kChunk);
}
inline Stretch segment_of(const DeltaRuleShape& shape, Index number) {
  return {shape.segment_offsets[at(number)], shape.segment_offsets[at(number + 1)]};
}
/// One head's part of these rows of a matrix with `size` columns a head.
template <typename T>
BasicView<T> head_rows(BasicView<T> m, Stretch rows, Index head, Index size) {
  return m.rows_from(rows.begin, rows.size()).cols_from(head * size, size);
}
/// Asks for rows that a later chunk reads: a head's are short and far apart, which no hardware foresees.
inline void ask_for(ConstMatrixView rows) {
  constexpr Index kLineFloats = 16;
  for (Index i = 0; i < rows.rows; ++i)
    for (Index j = 0; j < rows.cols; j += kLineFloats) __builtin_prefetch(rows.row(i) + j, 0, 2);
}
/// A head's state as [key_dim, value_dim].
template <typename T>
BasicView<T> state_of(const DeltaRuleShape& shape, BasicView<T> states, Index segment, Index head) {
  return {states.row(segment * shape.value_heads + head), shape.key_dim, shape.value_dim};
}

/// target's first source.cols columns = source, the padded ones 0.
void copy_padded(ConstMatrixView source, MatrixView target);
/// target_i = scale[i] * source_i, whole padded rows.
void scale_rows(ConstMatrixView source, const ChunkNumbers& scale, MatrixView target);
void scale_panels(Panels panels, float scale);
/// to [cols, depth] = from^T.
void transpose_panels(Panels from, Panels to);
/// Of two matrices of one shape, rows of panels added in double.
float dot(Panels a, Panels b);

/// key_dim^-0.5.
float query_scale(const DeltaRuleShape& shape);
/// y = x * factor, factor = scale / sqrt(sum of squares + 1e-6), which is returned.
float normalise_row(const float* x, Index count, float scale, float* y);

/// What a log_decay is taken for at least: e to it is 0, and sums of it are no infinities, whose differences
/// would be NaN.
inline constexpr float kLeastLogDecay = -1e4f;

/// query and key of a chunk as all value heads of one key head use them.
struct KeyChunk {
  KeyChunk(const DeltaRuleShape& shape, Pieces& pieces);
  static Index floats(const DeltaRuleShape& shape);

  /// Also sets inverse_*; padded columns are 0.
  void normalise_keys(ConstMatrixView raw_key);
  void normalise(ConstMatrixView raw_query, ConstMatrixView raw_key);
  /// Lower triangles of q k^T and k k^T.
  void multiply_inside();

  MatrixView query() const { return query_.rows_from(0, rows); }
  MatrixView key() const { return key_.rows_from(0, rows); }

  Index rows = 0;
  ChunkNumbers inverse_query = {}, inverse_key = {};  // what each raw row was multiplied with
  MatrixView query_key, key_key;                      // [kChunk, kChunk]

 private:
  MatrixView query_, key_;
  float* columns_;
  Index key_dim_;
  float query_scale_;
};

/// Decays of one value head inside a chunk: sums of log_decay from its first token on, in double, and powers
/// of their differences, none of which is above 1.
struct Decays {
  explicit Decays(Pieces& pieces);
  static Index floats();
  /// All of a chunk, from log_decay [rows, 1]; or all but `between`.
  void set(ConstMatrixView log_decay);
  void set_ends(ConstMatrixView log_decay);

  ChunkNumbers from_start = {};  // to token i, its own decay included
  ChunkNumbers to_end = {};      // from after token i
  float whole = 1;
  MatrixView between;  // [kChunk, kChunk] lower triangle: from after token j to token i

 private:
  alignas(64) std::array<double, kChunk> sums_ = {};
};

}  // namespace moeloom::delta_rule
