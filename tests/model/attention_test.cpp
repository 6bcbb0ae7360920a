#include "moeloom/model/attention.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {

void PrintTo(const AttentionShape& s, std::ostream* out) {
  *out << s.sequences << " sequences, " << s.query_length << " of " << s.key_length << " positions, heads "
       << s.heads << "/" << s.kv_heads << ", head_dim " << s.head_dim << "/" << s.value_size() << ", window "
       << s.window << ", scale " << s.scale;
}

namespace {

using testing::random_matrix;

struct Inputs {
  Matrix query;
  Matrix key;
  Matrix value;
  Matrix d_context;
};

Inputs random_inputs(const AttentionShape& s, std::uint64_t seed = 11) {
  const Index queries = s.sequences * s.query_length;
  const Index keys = s.sequences * s.key_length;
  return {random_matrix(queries, s.heads * s.head_dim, seed, 1.5),
          random_matrix(keys, s.kv_heads * s.head_dim, seed + 1, 1.5),
          random_matrix(keys, s.kv_heads * s.value_size(), seed + 2),
          random_matrix(queries, s.heads * s.value_size(), seed + 3)};
}

struct Outputs {
  Matrix context;
  Matrix log_sum_exp;
  Matrix d_query;
  Matrix d_key;
  Matrix d_value;
};

Outputs run(const AttentionShape& s, const Inputs& in) {
  const Index queries = s.sequences * s.query_length;
  const Index keys = s.sequences * s.key_length;
  Outputs out{Matrix(queries, s.heads * s.value_size()), Matrix(queries, s.heads),
              Matrix(queries, s.heads * s.head_dim), Matrix(keys, s.kv_heads * s.head_dim),
              Matrix(keys, s.kv_heads * s.value_size())};
  attention_forward(s, in.query, in.key, in.value, out.context, out.log_sum_exp);
  if (s.query_length == s.key_length)
    attention_backward(s, in.query, in.key, in.value, out.context, out.log_sum_exp, in.d_context, out.d_query,
                       out.d_key, out.d_value);
  return out;
}

using Doubles = std::vector<double>;

Doubles to_double(const Matrix& m) {
  const auto flat = m.view().flat();
  return {flat.begin(), flat.end()};
}

/// Attention by its definition, one query at a time with all its scores, in double.
struct Reference {
  AttentionShape shape;
  Doubles query;
  Doubles key;
  Doubles value;

  Reference(const AttentionShape& s, const Inputs& in)
      : shape(s), query(to_double(in.query)), key(to_double(in.key)), value(to_double(in.value)) {}

  double scale() const {
    return shape.scale != 0.0f ? shape.scale : 1.0 / std::sqrt(static_cast<double>(shape.head_dim));
  }

  /// context of one query and head -> out [value_dim]; returns log(sum(exp(scores))).
  double row(Index sequence, Index position, Index head, double* out) const {
    const AttentionShape& s = shape;
    const Index kv_head = head / (s.heads / s.kv_heads);
    const double* q = &query[at(((sequence * s.query_length + position) * s.heads + head) * s.head_dim)];
    const auto offset = [&](Index j, Index size) {
      return at(((sequence * s.key_length + j) * s.kv_heads + kv_head) * size);
    };
    const Index self = s.key_length - s.query_length + position;
    const auto seen = [&](Index j) { return j <= self && (s.window == 0 || j > self - s.window); };
    const Index keys = s.key_length;
    Doubles weights(at(keys));
    double sum = 0.0;
    for (Index j = 0; j < keys; ++j) {
      if (!seen(j)) continue;
      double score = 0.0;
      for (Index d = 0; d < s.head_dim; ++d) score += q[d] * key[offset(j, s.head_dim) + at(d)];
      weights[at(j)] = std::exp(score * scale());
      sum += weights[at(j)];
    }
    std::fill_n(out, s.value_size(), 0.0);
    for (Index j = 0; j < keys; ++j)
      for (Index d = 0; d < s.value_size(); ++d)
        out[d] += weights[at(j)] / sum * value[offset(j, s.value_size()) + at(d)];
    return std::log(sum);
  }

  /// <context, d_context> over one sequence: what the gradients are the gradients of.
  double objective(Index sequence, const Doubles& d_context) const {
    Doubles out(at(shape.value_size()));
    double sum = 0.0;
    for (Index position = 0; position < shape.query_length; ++position) {
      for (Index head = 0; head < shape.heads; ++head) {
        row(sequence, position, head, out.data());
        const Index first =
            ((sequence * shape.query_length + position) * shape.heads + head) * shape.value_size();
        for (Index d = 0; d < shape.value_size(); ++d) sum += out[at(d)] * d_context[at(first + d)];
      }
    }
    return sum;
  }
};

std::vector<AttentionShape> shapes() {
  std::vector<AttentionShape> all;
  const Index heads[][2] = {{1, 1}, {4, 2}, {6, 2}, {8, 8}};
  const Index head_dims[] = {8, 20, 32, 64};
  std::size_t turn = 0;  // of head_dim, so that each meets every length and every grouping
  for (const Index length : {1, 5, 24, 64, 65, 130}) {
    for (const auto& h : heads)
      all.push_back({.sequences = 2,
                     .query_length = length,
                     .key_length = length,
                     .heads = h[0],
                     .kv_heads = h[1],
                     .head_dim = head_dims[turn++ % 4]});
    ++turn;
  }
  return all;
}

/// Windows below, at and above the length, at both sides of a block and of a panel; sizes of heads that no
/// vector divides; values narrower and wider than keys; scales of their own.
std::vector<AttentionShape> windowed_shapes() {
  std::vector<AttentionShape> all;
  const Index head_dims[][2] = {{2, 0}, {24, 16}, {7, 9}, {33, 0}, {20, 40}};
  const Index heads[][2] = {{3, 1}, {2, 2}, {4, 2}};
  const float scales[] = {0.0f, 0.3f};
  std::size_t turn = 0;
  for (const Index length : {7, 48, 130})
    for (const Index window : {1, 2, 7, 16, 17, 23, 25, 48, 60, 129, 130, 200}) {
      const auto& size = head_dims[turn % 5];
      const auto& h = heads[turn % 3];
      all.push_back({.sequences = 2,
                     .query_length = length,
                     .key_length = length,
                     .heads = h[0],
                     .kv_heads = h[1],
                     .head_dim = size[0],
                     .value_dim = size[1],
                     .window = window,
                     .scale = scales[turn % 2]});
      ++turn;
    }
  all.push_back({.sequences = 1,
                 .query_length = 41,
                 .key_length = 41,
                 .heads = 2,
                 .kv_heads = 1,
                 .head_dim = 24,
                 .value_dim = 16});
  all.push_back({.sequences = 1,
                 .query_length = 41,
                 .key_length = 41,
                 .heads = 7,
                 .kv_heads = 1,
                 .head_dim = 3,
                 .value_dim = 1,
                 .scale = 0.7f});
  return all;
}

std::vector<AttentionShape> cached_shapes() {
  return {{.sequences = 1, .query_length = 1, .key_length = 130, .heads = 4, .kv_heads = 2, .head_dim = 32},
          {.sequences = 2, .query_length = 1, .key_length = 2, .heads = 2, .kv_heads = 1, .head_dim = 8},
          {.sequences = 2, .query_length = 30, .key_length = 77, .heads = 6, .kv_heads = 2, .head_dim = 20},
          {.sequences = 1, .query_length = 300, .key_length = 333, .heads = 2, .kv_heads = 1, .head_dim = 8},
          {.sequences = 2,
           .query_length = 1,
           .key_length = 77,
           .heads = 4,
           .kv_heads = 2,
           .head_dim = 20,
           .value_dim = 12,
           .window = 9},
          {.sequences = 1,
           .query_length = 30,
           .key_length = 90,
           .heads = 2,
           .kv_heads = 1,
           .head_dim = 5,
           .window = 33},
          {.sequences = 1,
           .query_length = 600,
           .key_length = 700,
           .heads = 2,
           .kv_heads = 1,
           .head_dim = 8,
           .window = 50}};
}

class AttentionOf : public ::testing::TestWithParam<AttentionShape> {};
class AttentionGradientOf : public ::testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionOf, EqualsTheDefinition) {
  const AttentionShape s = GetParam();
  const Inputs in = random_inputs(s);
  const Outputs out = run(s, in);
  const Reference reference(s, in);
  Doubles expected(at(s.value_size()));
  for (Index sequence = 0; sequence < s.sequences; ++sequence) {
    for (Index position = 0; position < s.query_length; ++position) {
      for (Index head = 0; head < s.heads; ++head) {
        const Index t = sequence * s.query_length + position;
        const double log_sum = reference.row(sequence, position, head, expected.data());
        // Scores reach about ten; each carries head_dim roundings of fp32, and e^x makes them relative ones.
        ASSERT_NEAR(out.log_sum_exp.view()(t, head), log_sum, 5e-6);
        for (Index d = 0; d < s.value_size(); ++d)
          ASSERT_NEAR(out.context.view()(t, head * s.value_size() + d), expected[at(d)], 1e-5)
              << "sequence " << sequence << " position " << position << " head " << head << " column " << d;
      }
    }
  }
}

/// Central differences of the definition at some elements of `input`, against `gradient`.
void expect_gradient(Reference& reference, Doubles& input, const Matrix& gradient, Index rows_per_sequence,
                     const Doubles& d_context, const char* name) {
  constexpr double kStep = 1e-5;
  const CounterRandom random(5, stream_of(name));
  const Index cols = gradient.cols();
  for (std::uint64_t sample = 0; sample < 12; ++sample) {
    const auto i = random.below(input.size(), sample);
    const Index sequence = static_cast<Index>(i) / cols / rows_per_sequence;
    const double kept = input[i];
    input[i] = kept + kStep;
    const double above = reference.objective(sequence, d_context);
    input[i] = kept - kStep;
    const double below = reference.objective(sequence, d_context);
    input[i] = kept;
    // Differences are good to 1e-8 here; the rest is fp32 over sums of up to 130 products.
    const double expected = (above - below) / (2 * kStep);
    EXPECT_NEAR(gradient.view().flat()[i], expected, 3e-5 * (1 + std::abs(expected))) << name << " " << i;
  }
}

TEST_P(AttentionGradientOf, EqualsCentralDifferencesOfTheDefinition) {
  const AttentionShape s = GetParam();
  const Inputs in = random_inputs(s);
  const Outputs out = run(s, in);
  Reference reference(s, in);
  const Doubles d_context = to_double(in.d_context);
  expect_gradient(reference, reference.query, out.d_query, s.query_length, d_context, "query");
  expect_gradient(reference, reference.key, out.d_key, s.key_length, d_context, "key");
  expect_gradient(reference, reference.value, out.d_value, s.key_length, d_context, "value");
}

INSTANTIATE_TEST_SUITE_P(Whole, AttentionOf, ::testing::ValuesIn(shapes()));
INSTANTIATE_TEST_SUITE_P(Windowed, AttentionOf, ::testing::ValuesIn(windowed_shapes()));
INSTANTIATE_TEST_SUITE_P(Windowed, AttentionGradientOf, ::testing::ValuesIn(windowed_shapes()));
INSTANTIATE_TEST_SUITE_P(Cached, AttentionOf, ::testing::ValuesIn(cached_shapes()));
INSTANTIATE_TEST_SUITE_P(Whole, AttentionGradientOf, ::testing::ValuesIn(shapes()));

void expect_same_bits(const Matrix& a, const Matrix& b) {
  ASSERT_EQ(a.view().size(), b.view().size());
  EXPECT_EQ(std::memcmp(a.row(0), b.row(0), static_cast<std::size_t>(a.view().size()) * sizeof(float)), 0);
}

void expect_same_bits(const Outputs& a, const Outputs& b) {
  expect_same_bits(a.context, b.context);
  expect_same_bits(a.log_sum_exp, b.log_sum_exp);
  expect_same_bits(a.d_query, b.d_query);
  expect_same_bits(a.d_key, b.d_key);
  expect_same_bits(a.d_value, b.d_value);
}

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
    const Inputs in = random_inputs(s);
    set_threads(1);
    const Outputs alone = run(s, in);
    set_threads(3);
    expect_same_bits(alone, run(s, in));
  }
  set_threads(before);
}

TEST(Attention, OfASequenceDoesNotDependOnItsNeighbours) {
  const AttentionShape two{
      .sequences = 2, .query_length = 30, .key_length = 30, .heads = 4, .kv_heads = 2, .head_dim = 32};
  AttentionShape one = two;
  one.sequences = 1;
  const Inputs in = random_inputs(two);
  const auto second = [](const Matrix& m) { return Matrix::copy_of(m.view().rows_from(30, 30)); };
  const Inputs in_second{second(in.query), second(in.key), second(in.value), second(in.d_context)};
  const Outputs both = run(two, in);
  expect_same_bits(run(one, in_second), {second(both.context), second(both.log_sum_exp), second(both.d_query),
                                         second(both.d_key), second(both.d_value)});
}

TEST(Attention, ReadsAndWritesPartsOfWiderMatrices) {
  const AttentionShape s{
      .sequences = 2, .query_length = 33, .key_length = 33, .heads = 4, .kv_heads = 2, .head_dim = 20};
  const Inputs in = random_inputs(s);
  const Outputs apart = run(s, in);
  const auto wide = [](const Matrix& m) {
    Matrix w(m.rows(), m.cols() + 10);
    fill(w, 7.0f);
    copy(m, w.view().cols_from(3, m.cols()));
    return w;
  };
  const auto inner = [](Matrix& w) { return w.view().cols_from(3, w.cols() - 10); };
  Matrix query = wide(in.query), key = wide(in.key), value = wide(in.value), d_context = wide(in.d_context);
  Outputs w{wide(apart.context), wide(apart.log_sum_exp), wide(apart.d_query), wide(apart.d_key),
            wide(apart.d_value)};
  for (Matrix* m : {&w.context, &w.log_sum_exp, &w.d_query, &w.d_key, &w.d_value}) fill(inner(*m), -1.0f);
  attention_forward(s, inner(query), inner(key), inner(value), inner(w.context), inner(w.log_sum_exp));
  attention_backward(s, inner(query), inner(key), inner(value), inner(w.context), inner(w.log_sum_exp),
                     inner(d_context), inner(w.d_query), inner(w.d_key), inner(w.d_value));
  expect_same_bits(w, {wide(apart.context), wide(apart.log_sum_exp), wide(apart.d_query), wide(apart.d_key),
                       wide(apart.d_value)});
}

TEST(Attention, OfAWindowAsLongAsTheSequenceHasTheBitsOfNoWindow) {
  AttentionShape s{
      .sequences = 2, .query_length = 70, .key_length = 70, .heads = 4, .kv_heads = 2, .head_dim = 20};
  const Inputs in = random_inputs(s);
  const Outputs all = run(s, in);
  s.window = 70;
  expect_same_bits(all, run(s, in));
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
  Inputs in = random_inputs(s);
  const Outputs before = run(s, in);
  // Queries from 120 on reach back to key 81; blocks of whole panels, to key 80.
  fill(in.key.view().rows_from(0, 64), std::numeric_limits<float>::quiet_NaN());
  fill(in.value.view().rows_from(0, 64), std::numeric_limits<float>::quiet_NaN());
  const Outputs after = run(s, in);
  const auto late = [](const Matrix& m) { return Matrix::copy_of(m.view().rows_from(120, 80)); };
  expect_same_bits(late(before.context), late(after.context));
  expect_same_bits(late(before.d_query), late(after.d_query));
}

TEST(Attention, StaysFiniteWithScoresOfThousands) {
  const AttentionShape s{
      .sequences = 1, .query_length = 40, .key_length = 40, .heads = 1, .kv_heads = 1, .head_dim = 8};
  Inputs in = random_inputs(s);
  for (float& x : in.query.view().flat()) x *= 1000.0f;
  const Outputs out = run(s, in);
  for (const Matrix* m : {&out.context, &out.d_query, &out.d_key, &out.d_value})
    for (const float x : m->view().flat()) ASSERT_TRUE(std::isfinite(x));
}

TEST(Attention, DoesNothingWithoutSequences) {
  const AttentionShape s{
      .sequences = 0, .query_length = 16, .key_length = 16, .heads = 2, .kv_heads = 1, .head_dim = 8};
  EXPECT_NO_THROW(run(s, random_inputs(s)));
}

TEST(Attention, RefusesShapesThatDoNotFit) {
  const AttentionShape good{
      .sequences = 1, .query_length = 4, .key_length = 4, .heads = 4, .kv_heads = 2, .head_dim = 8};
  const Inputs in = random_inputs(good);
  Matrix context(4, 32), log_sum_exp(4, 4), d_key(4, 16), d_value(4, 16), d_query(4, 32);
  const auto forward = [&](const AttentionShape& s) {
    attention_forward(s, in.query, in.key, in.value, context, log_sum_exp);
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
  EXPECT_THROW(attention_backward(cached, in.query, in.key, in.value, context, log_sum_exp, in.d_context,
                                  d_query, d_key, d_value),
               ShapeError);
}

}  // namespace
}  // namespace moeloom
