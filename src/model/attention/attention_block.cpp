#include "attention/attention_block.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom::attention {

void check(const AttentionShape& s, const ConstAttentionHeads& heads, ConstMatrixView context,
           ConstMatrixView log_sum_exp) {
  const auto& [query, key, value] = heads;
  const auto is = [](ConstMatrixView m, Index rows, Index cols) { return m.rows == rows && m.cols == cols; };
  const Index queries = s.sequences * s.query_length;
  const Index keys = s.sequences * s.key_length;
  require(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "attention: kv_heads must divide heads");
  require(s.window >= 0, "attention: a window must be at least 1 key, or 0 for all");
  require(s.query_length <= s.key_length, "attention: query_length must not exceed key_length");
  require(is(query, queries, s.heads * s.head_dim), "attention: query must be [queries, heads*head_dim]");
  require(is(context, queries, s.heads * s.value_size()),
          "attention: context must be [queries, heads*value_dim]");
  require(is(key, keys, s.kv_heads * s.head_dim), "attention: key must be [keys, kv_heads*head_dim]");
  require(is(value, keys, s.kv_heads * s.value_size()),
          "attention: value must be [keys, kv_heads*value_dim]");
  require(is(log_sum_exp, queries, s.heads), "attention: log_sum_exp must be [queries, heads]");
}

Stretch visible_keys(const AttentionShape& shape, Index begin, Index end) {
  const Index past = shape.key_length - shape.query_length;
  const Index first = shape.window > 0 ? std::max<Index>(0, past + begin + 1 - shape.window) : 0;
  return {first, past + end};
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
