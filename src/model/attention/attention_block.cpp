#include "attention/attention_block.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace moeloom::attention {

void check(const AttentionShape& s, const ConstAttentionHeads& heads, ConstMatrixView context,
           ConstMatrixView log_sum_exp) {
  const auto& [query, key, value] = heads;
  const auto is = [](ConstMatrixView m, Index rows, Index cols) { return m.rows == rows && m.cols == cols; };
  const Index queries = s.sequences * s.query_length;
  const Index keys = s.sequences * s.key_length;
  require(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "attention: kv_heads must divide heads");
  require(s.window >= 0, "attention: a window must be at least 1 key, or 0 for all");
  require(s.chunk >= 0, "attention: a chunk must be at least 1 key, or 0 for all");
  require(s.first_position >= 0, "attention: the first key's position must not be negative");
  require(s.sinks.empty() || std::ssize(s.sinks) == s.heads, "attention: sinks must be one a head");
  require(s.query_length <= s.key_length, "attention: query_length must not exceed key_length");
  require(is(query, queries, s.heads * s.head_dim), "attention: query must be [queries, heads*head_dim]");
  require(is(context, queries, s.heads * s.value_size()),
          "attention: context must be [queries, heads*value_dim]");
  require(is(key, keys, s.kv_heads * s.head_dim), "attention: key must be [keys, kv_heads*head_dim]");
  require(is(value, keys, s.kv_heads * s.value_size()),
          "attention: value must be [keys, kv_heads*value_dim]");
  require(is(log_sum_exp, queries, s.heads), "attention: log_sum_exp must be [queries, heads]");
  if (s.segment_offsets.empty()) return;
  require(s.query_length == s.key_length && s.first_position == 0,
          "attention: segments need a query for every key, from the first position on");
  require(
      s.segment_offsets.front() == 0 && s.segment_offsets.back() == queries &&
          std::ranges::adjacent_find(s.segment_offsets, std::greater_equal<>()) == s.segment_offsets.end(),
      "attention: segments must rise from 0 to the number of queries");
}

AttentionShape shape_of_segment(const AttentionShape& shape, Index length) {
  AttentionShape alone = shape;
  alone.sequences = 1;
  alone.query_length = alone.key_length = length;
  alone.segment_offsets = {};
  return alone;
}

Index longest_segment(const AttentionShape& shape) {
  Index longest = 0;
  for (Index s = 0; s + 1 < std::ssize(shape.segment_offsets); ++s)
    longest = std::max(longest, segment(shape, s).size());
  return longest;
}

Index most_visible(const AttentionShape& shape) {
  Index most = shape.key_length;
  for (const Index limit : {shape.window, shape.chunk})
    if (limit > 0) most = std::min(most, limit);
  return most;
}

Stretch visible_keys(const AttentionShape& shape, Index begin, Index end) {
  const Index past = shape.key_length - shape.query_length;
  const Index position = past + begin;
  const Index of_window = shape.window > 0 ? position + 1 - shape.window : 0;
  const Index first = shape.first_position;
  const Index of_chunk = shape.chunk > 0 ? (first + position) / shape.chunk * shape.chunk - first : 0;
  return {std::max({Index{0}, of_window, of_chunk}), past + end};
}

Stretch panels_of(Stretch keys) {
  return {keys.begin / kPanelColumns * kPanelColumns, keys.end};
}

float score_scale(const AttentionShape& shape) {
  if (shape.scale != 0.0f) return shape.scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

void copy_scaled(ConstMatrixView source, float scale, MatrixView target) {
  for (Index i = 0; i < source.rows; ++i) copy_scaled(source.row(i), scale, source.cols, target.row(i));
}

}  // namespace moeloom::attention
