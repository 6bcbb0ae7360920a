#include "model/loss.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/model/batch.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "support/golden_blocks.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;
using Targets = std::vector<std::int32_t>;

struct Case {
  Index rows;
  Index width;
  Index vocabulary;
  Index ignore_every;  // 0: none; 1: all
};
// One row, one word, a vocabulary that no vector divides, more rows than a chunk, targets that do not count.
const std::vector<Case> kCases = {{0, 8, 31, 0},  {1, 8, 31, 0},   {5, 4, 1, 0},    {14, 12, 31, 3},
                                  {9, 8, 256, 1}, {257, 8, 50, 2}, {600, 5, 17, 7}, {3, 6, 2100, 0}};

Targets random_targets(const Case& c) {
  const CounterRandom random(3, stream_of("targets"));
  Targets targets;
  for (Index t = 0; t < c.rows; ++t) {
    const auto drawn = random.below(static_cast<std::uint64_t>(c.vocabulary), static_cast<std::uint64_t>(t));
    const bool ignored = c.ignore_every > 0 && t % c.ignore_every == 0;
    targets.push_back(ignored ? kIgnored : static_cast<std::int32_t>(drawn));
  }
  return targets;
}

using Doubles = std::vector<double>;

Doubles to_double(const Matrix& m) {
  const auto flat = m.view().flat();
  return {flat.begin(), flat.end()};
}

/// What becomes of a product; a cap of 0 is none.
struct Logit {
  double scale = 1, cap = 0;
  double of(double product) const {
    return cap > 0 ? cap * std::tanh(scale * product / cap) : scale * product;
  }
};

/// -log p(target) of one row, by the definition.
double row_loss(const double* hidden, const Doubles& head, Index width, Index vocabulary, Index target,
                const Logit& by) {
  double sum = 0.0;
  double of_target = 0.0;
  for (Index v = 0; v < vocabulary; ++v) {
    double logit = 0.0;
    for (Index d = 0; d < width; ++d) logit += hidden[d] * head[static_cast<std::size_t>(v * width + d)];
    logit = by.of(logit);
    sum += std::exp(logit);
    if (v == target) of_target = logit;
  }
  return std::log(sum) - of_target;
}

double reference_loss(const Doubles& hidden, const Doubles& head, Index width, Index vocabulary,
                      const Targets& targets, const Logit& by = {}) {
  double sum = 0.0;
  for (std::size_t t = 0; t < targets.size(); ++t)
    if (targets[t] != kIgnored)
      sum += row_loss(&hidden[t * static_cast<std::size_t>(width)], head, width, vocabulary, targets[t], by);
  return sum;
}

struct Result {
  double loss = 0;
  Matrix d_hidden;
  Matrix d_head;
};

Result run(const Matrix& hidden, const Matrix& head, const Targets& targets, float scale,
           const Logit& by = {}) {
  Result result{0, random_matrix(hidden.rows(), hidden.cols(), 8), Matrix(head.rows(), head.cols())};
  const HeadWeights weights{.weight = head,
                            .grad = result.d_head,
                            .logit_scale = static_cast<float>(by.scale),
                            .logit_cap = static_cast<float>(by.cap)};
  result.loss = head_loss_backward(native_dense(), hidden, weights, targets, scale, result.d_hidden);
  return result;
}

/// Plain, and with a cap that most logits feel.
const std::vector<Logit> kLogits = {{}, {.scale = 0.5, .cap = 0}, {.scale = 1.5, .cap = 2}};

TEST(HeadLoss, EqualsTheDefinition) {
  for (const Case& c : kCases)
    for (const Logit& by : kLogits) {
      SCOPED_TRACE(std::to_string(c.rows) + " rows, vocabulary " + std::to_string(c.vocabulary));
      const Matrix hidden = random_matrix(c.rows, c.width, 1);
      const Matrix head = random_matrix(c.vocabulary, c.width, 2);
      const Targets targets = random_targets(c);
      const double expected =
          reference_loss(to_double(hidden), to_double(head), c.width, c.vocabulary, targets, by);
      const HeadWeights weights{.weight = head,
                                .logit_scale = static_cast<float>(by.scale),
                                .logit_cap = static_cast<float>(by.cap)};
      const double loss = head_loss(native_dense(), hidden, weights, targets);
      EXPECT_NEAR(loss, expected, 2e-6 * (1 + expected));  // fp32 logits, summed in double
      EXPECT_EQ(loss, run(hidden, head, targets, 0.5f, by).loss);
      const std::vector<double> each = head_token_losses(native_dense(), hidden, weights, targets);
      EXPECT_NEAR(std::accumulate(each.begin(), each.end(), 0.0), loss, 1e-9 * (1 + loss));
    }
}

TEST(HeadLoss, GradientsEqualCentralDifferencesOfTheDefinition) {
  constexpr double kStep = 1e-5;
  constexpr float kScale = 0.25f;
  for (const Case& c : kCases)
    for (const Logit& by : kLogits) {
      SCOPED_TRACE(std::to_string(c.rows) + " rows, vocabulary " + std::to_string(c.vocabulary));
      const Matrix hidden = random_matrix(c.rows, c.width, 1);
      const Matrix head = random_matrix(c.vocabulary, c.width, 2);
      const Targets targets = random_targets(c);
      const Result result = run(hidden, head, targets, kScale, by);
      Doubles x = to_double(hidden);
      Doubles w = to_double(head);
      const auto expect = [&](Doubles& input, const Matrix& gradient, std::uint64_t samples) {
        const CounterRandom random(4, stream_of("samples"));
        for (std::uint64_t sample = 0; sample < samples && !input.empty(); ++sample) {
          const auto i = random.below(input.size(), sample);
          const double kept = input[i];
          input[i] = kept + kStep;
          const double above = reference_loss(x, w, c.width, c.vocabulary, targets, by);
          input[i] = kept - kStep;
          const double below = reference_loss(x, w, c.width, c.vocabulary, targets, by);
          input[i] = kept;
          // The difference of two sums of up to 2,000 is good to 1e-7 / kStep * 1e-6.
          const double expected = kScale * (above - below) / (2 * kStep);
          EXPECT_NEAR(gradient.view().flat()[i], expected, 1e-5 * (1 + std::abs(expected))) << i;
        }
      };
      expect(x, result.d_hidden, 20);
      expect(w, result.d_head, 20);
    }
}

TEST(HeadLoss, AddsToTheHeadsGradientAndReplacesThatOfHidden) {
  const Case c{20, 8, 31, 4};
  const Matrix hidden = random_matrix(c.rows, c.width, 1);
  const Matrix head = random_matrix(c.vocabulary, c.width, 2);
  const Targets targets = random_targets(c);
  Result result = run(hidden, head, targets, 1.0f);
  const Result once = run(hidden, head, targets, 1.0f);
  head_loss_backward(native_dense(), hidden, {head, result.d_head}, targets, 1.0f, result.d_hidden);
  for (std::size_t i = 0; i < once.d_head.view().flat().size(); ++i)
    EXPECT_NEAR(result.d_head.view().flat()[i], 2 * once.d_head.view().flat()[i], 1e-5);
  for (std::size_t i = 0; i < once.d_hidden.view().flat().size(); ++i)
    EXPECT_EQ(result.d_hidden.view().flat()[i], once.d_hidden.view().flat()[i]);
}

TEST(HeadLoss, IsZeroWithoutGradientWhenEveryTargetIsIgnored) {
  const Matrix hidden = random_matrix(9, 8, 1);
  const Matrix head = random_matrix(31, 8, 2);
  const Result result = run(hidden, head, Targets(9, kIgnored), 1.0f);
  EXPECT_EQ(result.loss, 0.0);
  for (const float x : result.d_hidden.view().flat()) EXPECT_EQ(x, 0.0f);
  for (const float x : result.d_head.view().flat()) EXPECT_EQ(x, 0.0f);
}

TEST(HeadLoss, OfRowsWithoutATargetIsThatOfTheOtherRowsAlone) {
  const Matrix hidden = random_matrix(700, 12, 1);
  const Matrix head = random_matrix(40, 12, 2);
  Targets targets = random_targets({700, 12, 40, 3});
  std::fill(targets.begin() + 100, targets.begin() + 400, kIgnored);
  targets.back() = kIgnored;
  Targets counted;
  Matrix rows(std::count_if(targets.begin(), targets.end(), [](auto t) { return t != kIgnored; }), 12);
  for (Index t = 0; t < 700; ++t) {
    if (targets[at(t)] == kIgnored) continue;
    std::copy_n(hidden.row(t), 12, rows.row(std::ssize(counted)));
    counted.push_back(targets[at(t)]);
  }
  const Result whole = run(hidden, head, targets, 0.1f), part = run(rows, head, counted, 0.1f);
  EXPECT_EQ(whole.loss, part.loss);
  EXPECT_EQ(head_loss(native_dense(), hidden, {head}, targets), part.loss);
  EXPECT_EQ(to_double(whole.d_head), to_double(part.d_head));
  Index next = 0;
  for (Index t = 0; t < 700; ++t)
    for (Index j = 0, row = targets[at(t)] == kIgnored ? -1 : next++; j < 12; ++j)
      ASSERT_EQ(whole.d_hidden.view()(t, j), row < 0 ? 0.0f : part.d_hidden.view()(row, j)) << t;
}

TEST(HeadLoss, HasTheSameBitsOnOneThreadAndOnThree) {
  const int before = threads();
  const Matrix hidden = random_matrix(900, 24, 1);
  const Matrix head = random_matrix(130, 24, 2);
  const Targets targets = random_targets({900, 24, 130, 5});
  set_threads(1);
  const Result alone = run(hidden, head, targets, 0.1f);
  set_threads(3);
  const Result together = run(hidden, head, targets, 0.1f);
  EXPECT_EQ(head_loss(native_dense(), hidden, {head}, targets), alone.loss);
  set_threads(before);
  EXPECT_EQ(alone.loss, together.loss);
  const auto same = [](const Matrix& a, const Matrix& b) {
    return std::memcmp(a.row(0), b.row(0), static_cast<std::size_t>(a.view().size()) * sizeof(float)) == 0;
  };
  EXPECT_TRUE(same(alone.d_hidden, together.d_hidden));
  EXPECT_TRUE(same(alone.d_head, together.d_head));
}

TEST(HeadLoss, StaysExactWithLogitsOfThousands) {
  Matrix hidden(1, 1);
  Matrix head(3, 1);
  hidden.row(0)[0] = 1000.0f;
  head.row(0)[0] = 2.0f;
  head.row(1)[0] = -3.0f;
  EXPECT_DOUBLE_EQ(head_loss(native_dense(), hidden, {head}, Targets{0}), 0.0);
  EXPECT_DOUBLE_EQ(head_loss(native_dense(), hidden, {head}, Targets{1}), 5000.0);
}

TEST(HeadLoss, RefusesTargetsOutsideTheVocabulary) {
  const Matrix hidden = random_matrix(2, 4, 1);
  const Matrix head = random_matrix(5, 4, 2);
  for (const std::int32_t bad : {5, -1, -99}) {
    EXPECT_THROW(head_loss(native_dense(), hidden, {head}, Targets{0, bad}), ShapeError);
    EXPECT_THROW(run(hidden, head, Targets{bad, 0}, 1.0f), ShapeError);
  }
  EXPECT_THROW(head_loss(native_dense(), hidden, {head}, Targets{0}), ShapeError);
  EXPECT_THROW(head_loss(native_dense(), hidden, {random_matrix(5, 3, 2)}, Targets{0, 1}), ShapeError);
}

/// Logits are given, so the head is the identity and d_hidden is the gradient of the logits.
struct GivenLogits {
  Matrix logits;
  Matrix identity;
  Targets targets;
};

GivenLogits read_case(const testing::GoldenBlock& block) {
  const auto shape = block.shape("input.logits");
  const Index tokens = shape[0] * shape[1];
  GivenLogits given{Matrix(tokens, shape[2]), Matrix(shape[2], shape[2]), {}};
  block.tensors.read("input.logits", 0, given.logits.view().flat());
  for (Index v = 0; v < shape[2]; ++v) given.identity.row(v)[v] = 1.0f;
  const std::vector<std::int64_t> labels = block.tensors.integers("input.labels");
  for (Index t = 0; t < tokens; ++t) {
    const bool last = t % shape[1] == shape[1] - 1;
    given.targets.push_back(last ? kIgnored
                                 : static_cast<std::int32_t>(labels[static_cast<std::size_t>(t + 1)]));
  }
  return given;
}

TEST(HeadLoss, EqualsTheGoldenLossAndItsGradient) {
  testing::for_each_golden_block("HeadLoss", [](const testing::GoldenBlock& block) {
    SCOPED_TRACE(block.name);
    const GivenLogits given = read_case(block);
    Batch batch;
    batch.targets = given.targets;
    const double items =
        static_cast<double>(block.config.integer_or("num_items_in_batch", batch.counted_targets()));
    const double upstream = testing::doubles_in(block.tensors, "upstream_grad.output")[0];
    const double expected = testing::doubles_in(block.tensors, "output")[0];
    const Result result =
        run(given.logits, given.identity, given.targets, static_cast<float>(upstream / items));
    EXPECT_NEAR(result.loss / items, expected, 2e-6 * std::abs(expected));
    EXPECT_LE(testing::golden_error(result.d_hidden.view().flat(), block.tensors.floats("grad.input.logits"),
                                    testing::kBlockFloor),
              2e-5);
  });
}

/// A bias and a scale by what they are for: a column of the head that reads ones, and a head scaled whole.
TEST(HeadLoss, TakesABiasAndAScaleOfTheLogits) {
  constexpr float kScale = 0.25f, kOfLogits = 0.5f;
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.rows) + " rows, vocabulary " + std::to_string(c.vocabulary));
    const Matrix hidden = random_matrix(c.rows, c.width, 1), head = random_matrix(c.vocabulary, c.width, 2);
    const Matrix bias = random_matrix(1, c.vocabulary, 3);
    const Targets targets = random_targets(c);
    Matrix wide_hidden(c.rows, c.width + 1), wide_head(c.vocabulary, c.width + 1);
    copy(hidden, wide_hidden.view().cols_from(0, c.width));
    fill(wide_hidden.view().cols_from(c.width, 1), 1.0f);
    for (Index v = 0; v < c.vocabulary; ++v) {
      for (Index d = 0; d < c.width; ++d) wide_head.row(v)[d] = kOfLogits * head.row(v)[d];
      wide_head.row(v)[c.width] = kOfLogits * bias.row(0)[v];
    }
    const Result wide = run(wide_hidden, wide_head, targets, kScale);
    Matrix d_hidden(c.rows, c.width), d_head(c.vocabulary, c.width);
    std::vector<float> d_bias(at(c.vocabulary));
    const HeadWeights weights{head, d_head, bias.view().flat(), d_bias, kOfLogits};
    const double loss = head_loss_backward(native_dense(), hidden, weights, targets, kScale, d_hidden);
    EXPECT_NEAR(loss, wide.loss, 2e-6 * (1 + wide.loss));
    EXPECT_EQ(head_loss(native_dense(), hidden, weights, targets), loss);
    double sum = 0;
    for (const double one : head_token_losses(native_dense(), hidden, weights, targets)) sum += one;
    EXPECT_NEAR(sum, loss, 1e-9 * (1 + loss));
    const double rows = static_cast<double>(c.rows);
    for (Index t = 0; t < c.rows; ++t)
      for (Index d = 0; d < c.width; ++d) EXPECT_NEAR(d_hidden.row(t)[d], wide.d_hidden.row(t)[d], 2e-6);
    for (Index v = 0; v < c.vocabulary; ++v) {
      for (Index d = 0; d < c.width; ++d)
        EXPECT_NEAR(d_head.row(v)[d], kOfLogits * wide.d_head.row(v)[d], 1e-7 * (10 + rows));
      EXPECT_NEAR(d_bias[at(v)], kOfLogits * wide.d_head.row(v)[c.width], 1e-7 * (10 + rows));
    }
  }
}

TEST(HeadLoss, OfABiasHasTheBitsOfAnyNumberOfThreadsAndRefusesAnother) {
  const Matrix hidden = random_matrix(600, 5, 1), head = random_matrix(17, 5, 2),
               bias = random_matrix(1, 17, 3);
  const Targets targets = random_targets({600, 5, 17, 7});
  const int before = threads();
  std::vector<float> first;
  for (const int count : {1, 3}) {
    set_threads(count);
    Matrix d_hidden(600, 5), d_head(17, 5);
    std::vector<float> d_bias(17);
    head_loss_backward(native_dense(), hidden, {head, d_head, bias.view().flat(), d_bias}, targets, 1.0f,
                       d_hidden);
    if (count == 1) first = d_bias;
    EXPECT_EQ(d_bias, first);
  }
  set_threads(before);
  EXPECT_THROW(head_loss(native_dense(), hidden, {head, {}, bias.view().flat().first(16)}, targets),
               ShapeError);
}

}  // namespace
}  // namespace moeloom
