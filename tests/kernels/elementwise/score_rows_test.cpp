#include "kernels/elementwise/score_rows.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> row_of(Index n, float scale, std::uint64_t seed) {
  const Matrix row = testing::random_matrix(1, n, seed);
  std::vector<float> values;
  for (Index e = 0; e < n; ++e) values.push_back(scale * row.row(0)[e]);
  return values;
}

std::vector<double> softmax(const std::vector<float>& x) {
  std::vector<double> p;
  double sum = 0;
  for (const float value : x) sum += std::exp(static_cast<double>(value));
  for (const float value : x) p.push_back(std::exp(static_cast<double>(value)) / sum);
  return p;
}

double entropy_of(const std::vector<double>& scores) {
  double sum = 0, along = 0;
  for (const double s : scores) {
    sum += s;
    if (s > 0) along += s * std::log(s);
  }
  return std::log(sum) - along / sum;
}

constexpr double kUlp = std::numeric_limits<float>::epsilon();

TEST(ScoreRows, SoftmaxIsThatOfDoublesForEveryWidth) {
  for (const Index n : {1, 2, 7, 8, 16, 60, 128, 130, 512})
    for (const float scale : {0.01f, 1.0f, 20.0f}) {
      const std::vector<float> x = row_of(n, scale, 3);
      std::vector<float> scores(x.size());
      const auto [log_sum, entropy] = softmax_scores(x.data(), n, scores.data());
      const std::vector<double> expected = softmax(x);
      double sum = 0;
      for (const float value : x) sum += std::exp(static_cast<double>(value));
      EXPECT_NEAR(log_sum, std::log(sum), 4 * kUlp * (1 + std::fabs(std::log(sum)))) << n;
      // x - largest is rounded at the size of x; exp makes a relative error of it.
      for (std::size_t e = 0; e < x.size(); ++e)
        EXPECT_NEAR(scores[e], expected[e], (4 + 2 * scale) * 4 * kUlp * expected[e] + 1e-38) << n;
      EXPECT_NEAR(entropy, entropy_of(expected), 1e-5) << n;
    }
}

TEST(ScoreRows, SoftmaxGoesToItsLimits) {
  std::vector<float> x = {1000, -kInf, 999, -1000};
  std::vector<float> scores(4);
  const auto [log_sum, entropy] = softmax_scores(x.data(), 4, scores.data());
  EXPECT_NEAR(log_sum, 1000 + std::log(1 + std::exp(-1.0)), 1e-4);
  EXPECT_NEAR(entropy, 0.58220, 1e-5) << "of 1 and e^-1, not spoilt by the thousand or the infinity";
  EXPECT_EQ(scores[1], 0);
  EXPECT_EQ(scores[3], 0);
  EXPECT_NEAR(scores[0] + scores[2], 1, 1e-6);
}

TEST(ScoreRows, OneNanMakesARowOfThem) {
  for (const Index n : {1, 4, 16, 33, 128})
    for (const Index bad : {Index{0}, n / 2, n - 1}) {
      std::vector<float> x = row_of(n, 1, 5), scores(x.size());
      x[at(bad)] = kNan;
      const auto [log_sum, entropy] = softmax_scores(x.data(), n, scores.data());
      EXPECT_TRUE(std::isnan(log_sum) && std::isnan(entropy));
      for (const float score : scores) EXPECT_TRUE(std::isnan(score)) << n;
      sigmoid_scores(x.data(), n, scores.data());
      for (const float score : scores) EXPECT_TRUE(std::isnan(score)) << n;
    }
}

TEST(ScoreRows, SigmoidsAreThoseOfDoubles) {
  std::vector<float> x = row_of(133, 10, 6), scores(133);
  x[5] = kInf;
  x[6] = -kInf;
  sigmoid_scores(x.data(), 133, scores.data());
  for (std::size_t e = 0; e < x.size(); ++e) {
    const double expected = 1 / (1 + std::exp(-static_cast<double>(x[e])));
    EXPECT_NEAR(scores[e], expected, 8 * kUlp * expected) << x[e];
  }
}

TEST(ScoreRows, EntropyIsOfScoresDividedByTheirSum) {
  for (const Index n : {1, 3, 16, 64, 257}) {
    std::vector<float> scores = row_of(n, 1, 9);
    for (float& s : scores) s = std::fabs(s);
    if (n > 2) scores[1] = 0;
    std::vector<double> wide(scores.begin(), scores.end());
    EXPECT_NEAR(entropy_of_scores(scores.data(), n), entropy_of(wide), 1e-5) << n;
  }
  std::vector<float> scores(32, 0.0f);
  EXPECT_EQ(entropy_of_scores(scores.data(), 32), 0);
  scores[7] = 1e-44f;  // a sum of which is no normal number either
  EXPECT_EQ(entropy_of_scores(scores.data(), 32), 0) << "one expert has all";
  scores.assign(32, 1e-30f);
  EXPECT_NEAR(entropy_of_scores(scores.data(), 32), std::log(32.0), 1e-4);
  scores[3] = kNan;
  EXPECT_TRUE(std::isnan(entropy_of_scores(scores.data(), 32)));
}

TEST(ScoreRows, BackwardsAreTheFormulasInDouble) {
  for (const Index n : {1, 5, 16, 128, 200}) {
    const std::vector<float> p = [&] {
      std::vector<float> x = row_of(n, 1, 7), scores(x.size());
      softmax_scores(x.data(), n, scores.data());
      return scores;
    }();
    const std::vector<float> upstream = row_of(n, 1, 8);
    double mean = 0;
    for (std::size_t e = 0; e < p.size(); ++e) mean += static_cast<double>(p[e]) * upstream[e];
    std::vector<float> d = upstream;
    softmax_scores_backward(p.data(), n, 0.25f, d.data());
    for (std::size_t e = 0; e < p.size(); ++e) EXPECT_NEAR(d[e], p[e] * (upstream[e] - mean + 0.25), 1e-6);
    double sum = 0, along = 0;
    for (std::size_t e = 0; e < p.size(); ++e) {
      sum += 2.0 * p[e];
      along += 2.0 * p[e] * upstream[e];
    }
    std::vector<float> twice = p;
    for (float& s : twice) s *= 2;
    EXPECT_NEAR(sum_of_scores(twice.data(), n), sum, 1e-12);
    d.assign(p.size(), 0.5f);
    probability_backward(twice.data(), upstream.data(), n, d.data());
    for (std::size_t e = 0; e < p.size(); ++e)
      EXPECT_NEAR(d[e], 0.5 + (upstream[e] - along / sum) / sum, 1e-6);
    const std::vector<float> zeros(p.size());
    probability_backward(zeros.data(), upstream.data(), n, twice.data());
    EXPECT_EQ(twice[0], 2 * p[0]) << "without a score there is no probability";
    d = upstream;
    sigmoid_scores_backward(p.data(), n, d.data());
    for (std::size_t e = 0; e < p.size(); ++e) EXPECT_NEAR(d[e], upstream[e] * p[e] * (1.0 - p[e]), 1e-6);
  }
}

}  // namespace
}  // namespace moeloom
