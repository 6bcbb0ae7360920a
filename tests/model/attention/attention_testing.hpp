// What the tests of attention share: random inputs of a shape, its outputs and gradients, their bits.
#pragma once

#include "model/attention/attention.hpp"

#include <cstring>
#include <ostream>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {

inline void PrintTo(const AttentionShape& s, std::ostream* out) {
  *out << s.sequences << " sequences, " << s.query_length << " of " << s.key_length << " positions, heads "
       << s.heads << "/" << s.kv_heads << ", head_dim " << s.head_dim << "/" << s.value_size() << ", window "
       << s.window << ", chunk " << s.chunk << ", scale " << s.scale << ", " << s.sinks.size() << " sinks";
}

namespace testing {

struct AttentionInputs {
  Matrix query;
  Matrix key;
  Matrix value;
  Matrix d_context;
};

inline AttentionInputs random_inputs(const AttentionShape& s, std::uint64_t seed = 11) {
  const Index queries = s.sequences * s.query_length;
  const Index keys = s.sequences * s.key_length;
  return {random_matrix(queries, s.heads * s.head_dim, seed, 1.5),
          random_matrix(keys, s.kv_heads * s.head_dim, seed + 1, 1.5),
          random_matrix(keys, s.kv_heads * s.value_size(), seed + 2),
          random_matrix(queries, s.heads * s.value_size(), seed + 3)};
}

struct AttentionOutputs {
  Matrix context;
  Matrix log_sum_exp;
  Matrix d_query;
  Matrix d_key;
  Matrix d_value;
  Matrix d_sinks = Matrix(0, 0);  // [1, heads], of all rows at once
};

inline AttentionOutputs run_attention(const AttentionShape& s, const AttentionInputs& in) {
  const Index queries = s.sequences * s.query_length;
  const Index keys = s.sequences * s.key_length;
  AttentionOutputs out{Matrix(queries, s.heads * s.value_size()), Matrix(queries, s.heads),
                       Matrix(queries, s.heads * s.head_dim), Matrix(keys, s.kv_heads * s.head_dim),
                       Matrix(keys, s.kv_heads * s.value_size())};
  attention_forward(s, {in.query, in.key, in.value}, out.context, out.log_sum_exp);
  if (s.query_length == s.key_length)
    attention_backward(s, {in.query, in.key, in.value}, out.context, out.log_sum_exp, in.d_context,
                       {out.d_query, out.d_key, out.d_value});
  out.d_sinks = Matrix(1, std::ssize(s.sinks));
  if (s.query_length == s.key_length && !s.sinks.empty())
    add_sink_gradients(s.sinks, out.context, out.log_sum_exp, in.d_context, out.d_sinks.view().flat());
  return out;
}

inline void expect_same_bits(const Matrix& a, const Matrix& b) {
  ASSERT_EQ(a.view().size(), b.view().size());
  EXPECT_EQ(std::memcmp(a.row(0), b.row(0), static_cast<std::size_t>(a.view().size()) * sizeof(float)), 0);
}

inline void expect_same_bits(const AttentionOutputs& a, const AttentionOutputs& b) {
  expect_same_bits(a.context, b.context);
  expect_same_bits(a.log_sum_exp, b.log_sum_exp);
  expect_same_bits(a.d_query, b.d_query);
  expect_same_bits(a.d_key, b.d_key);
  expect_same_bits(a.d_value, b.d_value);
}

}  // namespace testing
}  // namespace moeloom
