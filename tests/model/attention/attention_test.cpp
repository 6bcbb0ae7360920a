#include "model/attention/attention.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "attention/attention_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::AttentionInputs;
using testing::AttentionOutputs;
using testing::expect_same_bits;
using testing::random_inputs;
using testing::run_attention;

TEST(Attention, HasTheSameBitsOnOneThreadAndOnThree) {
  const int before = threads();
  for (const AttentionShape& s : std::vector<AttentionShape>{
           {.sequences = 3, .query_length = 65, .key_length = 65, .heads = 6, .kv_heads = 2, .head_dim = 20},
           {.sequences = 1,
           .query_length = 700,
           .key_length = 700,
           .heads = 2,
           .kv_heads = 1,
           .head_dim = 8,
           .value_dim = 5,
           .window = 100}}) {
    const AttentionInputs in = random_inputs(s);
    set_threads(1);
    const AttentionOutputs alone = run_attention(s, in);
    set_threads(3);
    expect_same_bits(alone, run_attention(s, in));
  }
  set_threads(before);
}

TEST(Attention, OfASequenceDoesNotDependOnItsNeighbours) {
  const AttentionShape two{
      .sequences = 2, .query_length = 30, .key_length = 30, .heads = 4, .kv_heads = 2, .head_dim = 32};
  AttentionShape one = two;
  one.sequences = 1;
  const AttentionInputs in = random_inputs(two);
  const auto second = [](const Matrix& m) { return Matrix::copy_of(m.view().rows_from(30, 30)); };
  const AttentionInputs in_second{second(in.query), second(in.key), second(in.value), second(in.d_context)};
  const AttentionOutputs both = run_attention(two, in);
  expect_same_bits(run_attention(one, in_second),
                   {second(both.context), second(both.log_sum_exp), second(both.d_query), second(both.d_key),
                    second(both.d_value)});
}

TEST(Attention, ReadsAndWritesPartsOfWiderMatrices) {
  const AttentionShape s{
      .sequences = 2, .query_length = 33, .key_length = 33, .heads = 4, .kv_heads = 2, .head_dim = 20};
  const AttentionInputs in = random_inputs(s);
  const AttentionOutputs apart = run_attention(s, in);
  const auto wide = [](const Matrix& m) {
    Matrix w(m.rows(), m.cols() + 10);
    fill(w, 7.0f);
    copy(m, w.view().cols_from(3, m.cols()));
    return w;
  };
  const auto inner = [](Matrix& w) { return w.view().cols_from(3, w.cols() - 10); };
  Matrix query = wide(in.query), key = wide(in.key), value = wide(in.value), d_context = wide(in.d_context);
  AttentionOutputs w{wide(apart.context), wide(apart.log_sum_exp), wide(apart.d_query), wide(apart.d_key),
                     wide(apart.d_value)};
  for (Matrix* m : {&w.context, &w.log_sum_exp, &w.d_query, &w.d_key, &w.d_value}) fill(inner(*m), -1.0f);
  const AttentionHeads heads{inner(query), inner(key), inner(value)};
  attention_forward(s, heads, inner(w.context), inner(w.log_sum_exp));
  attention_backward(s, heads, inner(w.context), inner(w.log_sum_exp), inner(d_context),
                     {inner(w.d_query), inner(w.d_key), inner(w.d_value)});
  expect_same_bits(w, {wide(apart.context), wide(apart.log_sum_exp), wide(apart.d_query), wide(apart.d_key),
                       wide(apart.d_value)});
}

TEST(Attention, OfAWindowAsLongAsTheSequenceHasTheBitsOfNoWindow) {
  AttentionShape s{
      .sequences = 2, .query_length = 70, .key_length = 70, .heads = 4, .kv_heads = 2, .head_dim = 20};
  const AttentionInputs in = random_inputs(s);
  const AttentionOutputs all = run_attention(s, in);
  s.window = 70;
  expect_same_bits(all, run_attention(s, in));
}

// What lies outside the window is never read into a sum: not as 0 * NaN either.
TEST(Attention, DoesNotSeeWhatTheWindowLeavesOut) {
  const AttentionShape s{.sequences = 1,
                         .query_length = 200,
                         .key_length = 200,
                         .heads = 2,
                         .kv_heads = 1,
                         .head_dim = 8,
                         .window = 40};
  AttentionInputs in = random_inputs(s);
  const AttentionOutputs before = run_attention(s, in);
  // Queries from 120 on reach back to key 81; blocks of whole panels, to key 80.
  fill(in.key.view().rows_from(0, 64), std::numeric_limits<float>::quiet_NaN());
  fill(in.value.view().rows_from(0, 64), std::numeric_limits<float>::quiet_NaN());
  const AttentionOutputs after = run_attention(s, in);
  const auto late = [](const Matrix& m) { return Matrix::copy_of(m.view().rows_from(120, 80)); };
  expect_same_bits(late(before.context), late(after.context));
  expect_same_bits(late(before.d_query), late(after.d_query));
}

TEST(Attention, StaysFiniteWithScoresOfThousands) {
  const AttentionShape s{
      .sequences = 1, .query_length = 40, .key_length = 40, .heads = 1, .kv_heads = 1, .head_dim = 8};
  AttentionInputs in = random_inputs(s);
  for (float& x : in.query.view().flat()) x *= 1000.0f;
  const AttentionOutputs out = run_attention(s, in);
  for (const Matrix* m : {&out.context, &out.d_query, &out.d_key, &out.d_value})
    for (const float x : m->view().flat()) ASSERT_TRUE(std::isfinite(x));
}

TEST(Attention, DoesNothingWithoutSequences) {
  const AttentionShape s{
      .sequences = 0, .query_length = 16, .key_length = 16, .heads = 2, .kv_heads = 1, .head_dim = 8};
  EXPECT_NO_THROW(run_attention(s, random_inputs(s)));
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  const AttentionShape good{
      .sequences = 1, .query_length = 4, .key_length = 4, .heads = 4, .kv_heads = 2, .head_dim = 8};
  const AttentionInputs in = random_inputs(good);
  Matrix context(4, 32), log_sum_exp(4, 4), d_key(4, 16), d_value(4, 16), d_query(4, 32);
  const auto forward = [&](const AttentionShape& s) {
    attention_forward(s, {in.query, in.key, in.value}, context, log_sum_exp);
  };
  EXPECT_NO_THROW(forward(good));
  AttentionShape odd_group = good;
  odd_group.kv_heads = 3;
  EXPECT_THROW(forward(odd_group), ShapeError);
  AttentionShape too_long = good;
  too_long.query_length = 5;
  EXPECT_THROW(forward(too_long), ShapeError);
  AttentionShape wide_values = good;
  wide_values.value_dim = 9;
  EXPECT_THROW(forward(wide_values), ShapeError);
  AttentionShape backwards = good;
  backwards.window = -1;
  EXPECT_THROW(forward(backwards), ShapeError);
  AttentionShape cached = good;
  cached.query_length = 2;
  EXPECT_THROW(attention_backward(cached, {in.query, in.key, in.value}, context, log_sum_exp, in.d_context,
                                  {d_query, d_key, d_value}),
               ShapeError);
}

}  // namespace
}  // namespace moeloom
