#include "train/adamw.hpp"

#include "moeloom/base/errors.hpp"

#include <bit>
#include <cmath>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr std::uint64_t kSeed = 20260101;

std::vector<float> random_floats(Index count, std::uint64_t seed, double scale = 1.0) {
  const Matrix m = testing::random_matrix(1, count, seed, scale);
  return {m.row(0), m.row(0) + count};
}

struct State {
  std::vector<float> w, m, v;

  explicit State(Index count)
      : w(random_floats(count, kSeed)),
        m(static_cast<std::size_t>(count), 0.0f),
        v(static_cast<std::size_t>(count), 0.0f) {}
  void update(const AdamW& settings, const AdamWUpdate& update, const std::vector<float>& grad) {
    adamw_update(settings, update, grad, w, m, v);
  }
};

/// The same in double, by the formula: decay first, then the two moments, then the step.
struct Definition {
  std::vector<double> w, m, v;

  explicit Definition(const State& start)
      : w(start.w.begin(), start.w.end()), m(w.size(), 0.0), v(w.size(), 0.0) {}
  void update(const AdamW& settings, const AdamWUpdate& update, const std::vector<float>& grad) {
    const double t = static_cast<double>(update.time);
    const double unbias1 = 1 - std::pow(settings.beta1, t);
    const double unbias2 = 1 - std::pow(settings.beta2, t);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = update.grad_scale * static_cast<double>(grad[i]);
      w[i] *= 1 - update.learning_rate * update.weight_decay;
      m[i] = settings.beta1 * m[i] + (1 - settings.beta1) * g;
      v[i] = settings.beta2 * v[i] + (1 - settings.beta2) * g * g;
      w[i] -=
          update.learning_rate / unbias1 * m[i] / (std::sqrt(v[i]) / std::sqrt(unbias2) + settings.epsilon);
    }
  }
};

double largest_gap(const std::vector<float>& got, const std::vector<double>& expected) {
  double gap = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    gap = std::max(gap, std::abs(static_cast<double>(got[i]) - expected[i]));
  return gap;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i])) return false;
  return true;
}

TEST(AdamW, FollowsItsDefinitionOverSeveralSteps) {
  struct Case {
    Index count;
    AdamW settings;
    double scale, decay, grad_size;
  };
  const AdamW usual;
  const AdamW torch_defaults{.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8, .weight_decay = 0.01};
  const AdamW large_epsilon{.beta1 = 0.5, .beta2 = 0.75, .epsilon = 0.3, .weight_decay = 0.0};
  const Case cases[] = {
      {0, usual, 1.0, 0.1, 1.0},
      {1, usual, 1.0, 0.1, 1.0},
      {7, usual, 0.25, 0.0, 1.0},
      {1000, torch_defaults, 1.0, 0.01, 1e-3},
      {1003, large_epsilon, 0.7, 0.5, 1.0},
      {64, usual, 1e-3, 0.1, 100.0},
  };
  for (const Case& c : cases) {
    State state(c.count);
    Definition definition(state);
    for (Index time = 1; time <= 8; ++time) {
      const AdamWUpdate update{.learning_rate = 0.01 / static_cast<double>(time),
                               .grad_scale = c.scale,
                               .weight_decay = c.decay,
                               .time = time};
      const auto grad = random_floats(c.count, kSeed + static_cast<std::uint64_t>(time), c.grad_size);
      state.update(c.settings, update, grad);
      definition.update(c.settings, update, grad);
    }
    SCOPED_TRACE(std::to_string(c.count) + " weights, seed " + std::to_string(kSeed));
    const double grad = c.scale * c.grad_size;
    // 8 steps, each rounding a weight of at most 4 and a few factors of its step once: 8 * 2^-22 and some.
    EXPECT_LE(largest_gap(state.w, definition.w), 3e-6);
    EXPECT_LE(largest_gap(state.m, definition.m), 2e-6 * grad);
    EXPECT_LE(largest_gap(state.v, definition.v), 1e-5 * grad * grad);
  }
}

TEST(AdamW, WithoutGradientOnlyDecaysAFreshWeight) {
  State state(5);
  const State start = state;
  state.update({}, {.learning_rate = 0.5, .weight_decay = 0.5}, std::vector<float>(5, 0.0f));
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(state.w[i], 0.75f * start.w[i]);
  EXPECT_EQ(state.m, start.m);
  EXPECT_EQ(state.v, start.v);
}

TEST(AdamW, TakesItsDecayFromTheUpdateAlone) {
  State a(9);
  State b(9);
  const auto grad = random_floats(9, kSeed + 1);
  a.update({.weight_decay = 0.9}, {.learning_rate = 0.1, .weight_decay = 0.0}, grad);
  b.update({.weight_decay = 0.0}, {.learning_rate = 0.1, .weight_decay = 0.0}, grad);
  EXPECT_TRUE(same_bits(a.w, b.w)) << "the optimizer decides which stretches decay";
}

TEST(AdamW, GivesAWeightTheSameBitsWhereverItsStretchBeginsAndEnds) {
  constexpr Index kCount = 203;
  State whole(kCount);
  State parts(kCount);
  for (Index time = 1; time <= 3; ++time) {
    const AdamWUpdate update{.learning_rate = 0.01, .grad_scale = 0.3, .weight_decay = 0.1, .time = time};
    const auto grad = random_floats(kCount, kSeed + static_cast<std::uint64_t>(time));
    whole.update({}, update, grad);
    std::size_t begin = 0;
    for (std::size_t length = 1; begin < kCount; begin += length, length = length * 2 + 1) {
      const std::size_t count = std::min<std::size_t>(length, kCount - begin);
      adamw_update({}, update, std::span(grad).subspan(begin, count),
                   std::span(parts.w).subspan(begin, count), std::span(parts.m).subspan(begin, count),
                   std::span(parts.v).subspan(begin, count));
    }
  }
  EXPECT_TRUE(same_bits(whole.w, parts.w));
  EXPECT_TRUE(same_bits(whole.m, parts.m));
  EXPECT_TRUE(same_bits(whole.v, parts.v));
}

TEST(AdamW, RefusesStretchesOfDifferentLengths) {
  State state(4);
  EXPECT_THROW(state.update({}, {}, std::vector<float>(3)), ShapeError);
  state.m.resize(5);
  EXPECT_THROW(state.update({}, {}, std::vector<float>(4)), ShapeError);
}

}  // namespace
}  // namespace moeloom
