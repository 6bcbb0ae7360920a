#include "attention_block.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>

namespace moeloom::attention {

void check(const AttentionShape& s, ConstMatrixView query, ConstMatrixView key, ConstMatrixView value,
           ConstMatrixView context, ConstMatrixView log_sum_exp) {
  const auto is = [](ConstMatrixView m, Index rows, Index cols) { return m.rows == rows && m.cols == cols; };
  const Index queries = s.sequences * s.query_length;
  const Index keys = s.sequences * s.key_length;
  require(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "attention: kv_heads must divide heads");
  require(s.query_length <= s.key_length, "attention: query_length must not exceed key_length");
  require(is(query, queries, s.heads * s.head_dim), "attention: query must be [queries, heads*head_dim]");
  require(is(context, queries, s.heads * s.head_dim), "attention: context must have the shape of query");
  require(is(key, keys, s.kv_heads * s.head_dim), "attention: key must be [keys, kv_heads*head_dim]");
  require(is(value, keys, s.kv_heads * s.head_dim), "attention: value must have the shape of key");
  require(is(log_sum_exp, queries, s.heads), "attention: log_sum_exp must be [queries, heads]");
}

float score_scale(const AttentionShape& shape) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

void copy_scaled(ConstMatrixView source, float scale, MatrixView target) {
  for (Index i = 0; i < source.rows; ++i) copy_scaled(source.row(i), scale, source.cols, target.row(i));
}

}  // namespace moeloom::attention
