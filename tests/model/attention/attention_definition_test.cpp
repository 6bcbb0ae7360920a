// Attention and its gradients against the definition in double, at every kind of shape.
#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/attention_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::AttentionInputs;
using testing::AttentionOutputs;
using testing::random_inputs;
using testing::run_attention;

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
  Doubles sinks;

  Reference(const AttentionShape& s, const AttentionInputs& in)
      : shape(s),
        query(to_double(in.query)),
        key(to_double(in.key)),
        value(to_double(in.value)),
        sinks(s.sinks.begin(), s.sinks.end()) {}

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
    const auto seen = [&](Index j) {
      return j <= self && (s.window == 0 || j > self - s.window) &&
             (s.chunk == 0 || (s.first_position + j) / s.chunk == (s.first_position + self) / s.chunk);
    };
    const Index keys = s.key_length;
    Doubles weights(at(keys));
    double sum = sinks.empty() ? 0.0 : std::exp(sinks[at(head)]);
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

/// Chunks below, at and above the length, at both sides of a block and of a panel, some of them cut shorter
/// by a window, and sinks from far below the scores to far above them.
std::vector<AttentionShape> chunked_shapes() {
  static constexpr float kSinks[] = {-20.0f, 0.5f, 30.0f, 2.0f};
  std::vector<AttentionShape> all;
  const Index head_dims[][2] = {{8, 0}, {24, 16}, {7, 9}};
  const Index heads[][2] = {{4, 2}, {3, 1}, {2, 2}};
  std::size_t turn = 0;
  for (const Index length : {1, 7, 48, 130})
    for (const Index chunk : {0, 1, 5, 16, 24, 47, 64, 129, 130, 200})
      for (const Index window : {0, 9}) {
        const auto& size = head_dims[turn % 3];
        const auto& h = heads[turn / 3 % 3];
        all.push_back({.sequences = 2,
                       .query_length = length,
                       .key_length = length,
                       .heads = h[0],
                       .kv_heads = h[1],
                       .head_dim = size[0],
                       .value_dim = size[1],
                       .window = window,
                       .chunk = chunk});
        if (chunk == 0 || turn % 2 == 0) all.back().sinks = std::span(kSinks).first(at(h[0]));
        ++turn;
      }
  return all;
}

std::vector<AttentionShape> cached_shapes() {
  static constexpr float kSinks[] = {-1.0f, 6.0f};
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
           .window = 50},
          {.sequences = 2,
           .query_length = 1,
           .key_length = 77,
           .heads = 2,
           .kv_heads = 1,
           .head_dim = 12,
           .chunk = 20,
           .sinks = kSinks},
          {.sequences = 1,
           .query_length = 30,
           .key_length = 90,
           .heads = 2,
           .kv_heads = 2,
           .head_dim = 5,
           .window = 7,
           .chunk = 33,
           .sinks = kSinks},
          {.sequences = 1,
           .query_length = 600,
           .key_length = 700,
           .heads = 2,
           .kv_heads = 1,
           .head_dim = 8,
           .chunk = 150},
          {.sequences = 2,  // the keys before them were dropped
           .query_length = 20,
           .key_length = 60,
           .heads = 2,
           .kv_heads = 1,
           .head_dim = 8,
           .chunk = 50,
           .first_position = 32}};
}

class AttentionOf : public ::testing::TestWithParam<AttentionShape> {};
class AttentionGradientOf : public ::testing::TestWithParam<AttentionShape> {};

TEST_P(AttentionOf, EqualsTheDefinition) {
  const AttentionShape s = GetParam();
  const AttentionInputs in = random_inputs(s);
  const AttentionOutputs out = run_attention(s, in);
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
  const AttentionInputs in = random_inputs(s);
  const AttentionOutputs out = run_attention(s, in);
  Reference reference(s, in);
  const Doubles d_context = to_double(in.d_context);
  expect_gradient(reference, reference.query, out.d_query, s.query_length, d_context, "query");
  expect_gradient(reference, reference.key, out.d_key, s.key_length, d_context, "key");
  expect_gradient(reference, reference.value, out.d_value, s.key_length, d_context, "value");
}

TEST_P(AttentionGradientOf, SinksEqualsCentralDifferencesOfTheDefinition) {
  constexpr double kStep = 1e-5;
  const AttentionShape s = GetParam();
  const AttentionInputs in = random_inputs(s);
  const AttentionOutputs out = run_attention(s, in);
  Reference reference(s, in);
  const Doubles d_context = to_double(in.d_context);
  const auto objective = [&] {
    double sum = 0;
    for (Index sequence = 0; sequence < s.sequences; ++sequence)
      sum += reference.objective(sequence, d_context);
    return sum;
  };
  for (std::size_t head = 0; head < reference.sinks.size(); ++head) {
    const double kept = reference.sinks[head];
    reference.sinks[head] = kept + kStep;
    const double above = objective();
    reference.sinks[head] = kept - kStep;
    const double expected = (above - objective()) / (2 * kStep);
    reference.sinks[head] = kept;
    EXPECT_NEAR(out.d_sinks.view().flat()[head], expected, 3e-5 * (1 + std::abs(expected))) << head;
  }
}

INSTANTIATE_TEST_SUITE_P(Whole, AttentionOf, ::testing::ValuesIn(shapes()));
INSTANTIATE_TEST_SUITE_P(Windowed, AttentionOf, ::testing::ValuesIn(windowed_shapes()));
INSTANTIATE_TEST_SUITE_P(Windowed, AttentionGradientOf, ::testing::ValuesIn(windowed_shapes()));
INSTANTIATE_TEST_SUITE_P(Chunked, AttentionOf, ::testing::ValuesIn(chunked_shapes()));
INSTANTIATE_TEST_SUITE_P(Chunked, AttentionGradientOf, ::testing::ValuesIn(chunked_shapes()));
INSTANTIATE_TEST_SUITE_P(Cached, AttentionOf, ::testing::ValuesIn(cached_shapes()));
INSTANTIATE_TEST_SUITE_P(Whole, AttentionGradientOf, ::testing::ValuesIn(shapes()));

}  // namespace
}  // namespace moeloom
