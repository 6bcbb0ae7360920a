#include "moeloom/model/sampling.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Ids = std::vector<std::int32_t>;

/// All that is ever drawn.
std::set<std::int32_t> drawn(const std::vector<float>& logits, const SamplingSettings& settings,
                             const Ids& text = {}) {
  std::set<std::int32_t> ids;
  for (Index position = 0; position < 3000; ++position)
    ids.insert(sample_token(logits, settings, position, text));
  return ids;
}

TEST(SampleToken, IsTheLikeliestAtTemperatureZeroAndTheLowerIdOnATie) {
  const std::vector<float> logits = {1, 3, -2, 3, 2};
  for (Index position = 0; position < 20; ++position) {
    EXPECT_EQ(sample_token(logits, {.temperature = 0}, position), 1);
    EXPECT_EQ(sample_token(logits, {.temperature = 5, .top_k = 1}, position), 1);
  }
  EXPECT_THROW(sample_token({}, {}, 0), ShapeError);
}

TEST(SampleToken, FollowsTheSoftmaxOfTheLogits) {
  const std::vector<float> logits = {0, 1, -1, 0.5f};
  constexpr Index kDraws = 40000;
  for (const double temperature : {0.5, 1.0, 2.0}) {
    std::vector<double> probability, seen(logits.size());
    double sum = 0;
    for (const float logit : logits) sum += probability.emplace_back(std::exp(logit / temperature));
    for (Index position = 0; position < kDraws; ++position)
      seen[at(sample_token(logits, {.temperature = temperature, .seed = 3}, position))] += 1;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      const double p = probability[i] / sum;
      const double deviation = std::sqrt(p * (1 - p) / kDraws);
      EXPECT_NEAR(seen[i] / kDraws, p, 5 * deviation) << "token " << i << " at " << temperature;
    }
  }
}

TEST(SampleToken, ChoosesAmongTheTopKAndFindsThemAll) {
  const std::vector<float> logits = {0.1f, 0.4f, 0.2f, 0.3f, 0.4f};
  std::set<std::int32_t> found, all;
  for (Index position = 0; position < 300; ++position) {
    found.insert(sample_token(logits, {.top_k = 3}, position));
    all.insert(sample_token(logits, {.top_k = 9}, position));
  }
  EXPECT_EQ(found, (std::set<std::int32_t>{1, 3, 4}));
  EXPECT_EQ(all.size(), logits.size()) << "more than there are is all of them";
}

TEST(SampleToken, IsAFunctionOfSeedAndPosition) {
  const std::vector<float> logits(64, 0.0f);
  const auto draws = [&](std::uint64_t seed) {
    Ids ids;
    for (Index position = 0; position < 50; ++position)
      ids.push_back(sample_token(logits, {.seed = seed}, position));
    return ids;
  };
  EXPECT_EQ(draws(1), draws(1));
  EXPECT_NE(draws(1), draws(2));
}

TEST(SampleToken, TopPKeepsTheFewestThatReachTheShare) {
  // Probabilities 0.5, 0.25, 0.15, 0.1 in another order.
  const std::vector<float> logits = {std::log(0.15f), std::log(0.5f), std::log(0.1f), std::log(0.25f)};
  EXPECT_EQ(drawn(logits, {.top_p = 0.45}), (std::set{1}));
  EXPECT_EQ(drawn(logits, {.top_p = 0.6}), (std::set{1, 3}));
  EXPECT_EQ(drawn(logits, {.top_p = 0.85}), (std::set{0, 1, 3}));
  EXPECT_EQ(drawn(logits, {.top_p = 0.95}), (std::set{0, 1, 2, 3}));
  EXPECT_EQ(drawn(logits, {.top_k = 2, .top_p = 0.6}), (std::set{1})) << "of what top_k left: 0.67, 0.33";
}

TEST(SampleToken, MinPIsAShareOfTheLikeliest) {
  const std::vector<float> logits = {std::log(0.15f), std::log(0.5f), std::log(0.1f), std::log(0.25f)};
  EXPECT_EQ(drawn(logits, {.min_p = 0.45}), (std::set{1, 3}));
  EXPECT_EQ(drawn(logits, {.min_p = 0.25}), (std::set{0, 1, 3}));
  EXPECT_EQ(drawn(logits, {.min_p = 1.0}), (std::set{1}));
  EXPECT_EQ(drawn(logits, {.temperature = 0.5, .min_p = 0.45}), (std::set{1}))
      << "after the temperature: 1, 0.25";
}

TEST(SampleToken, ARepetitionCostsOnceWhateverTheSign) {
  const std::vector<float> logits = {2.0f, 1.5f, -1.0f};
  EXPECT_EQ(sample_token(logits, {.temperature = 0, .repetition_penalty = 2}, 0, Ids{0, 0}), 1)
      << "1 against 1.5";
  EXPECT_EQ(sample_token(logits, {.temperature = 0, .repetition_penalty = 2}, 0, Ids{0, 1}), 0)
      << "1 against 0.75";
  const std::vector<float> negative = {-1.0f, -1.5f};
  EXPECT_EQ(sample_token(negative, {.temperature = 0, .repetition_penalty = 2}, 0, Ids{0}), 1)
      << "-2 against -1.5";
}

TEST(SampleToken, RefusesSettingsByName) {
  const SamplingSettings bad[] = {{.temperature = -1}, {.top_k = -1}, {.top_p = 0},
                                  {.top_p = 1.5},      {.min_p = 2},  {.repetition_penalty = 0}};
  for (const SamplingSettings& settings : bad) EXPECT_THROW(check(settings), ConfigError);
  EXPECT_NO_THROW(check(SamplingSettings{}));
}

}  // namespace
}  // namespace moeloom
