#include "moeloom/tensor/exact_sums.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr double kUnit = ExactSums::kUnit;

/// The sum of leaves of one element each.
std::int64_t sum_of(std::vector<float> leaves) {
  std::vector<float> gradient(1);
  ExactSums sums(gradient, std::ssize(leaves));
  for (const float leaf : leaves) {
    gradient[0] = leaf;
    sums.take(std::span(gradient));
    EXPECT_EQ(gradient[0], 0.0f);
  }
  EXPECT_FALSE(sums.broken());
  return sums.sums()[0];
}

TEST(ExactSums, HaveNoOrder) {
  std::vector<float> leaves = {1.0f, -1.0f, 1e-7f, 3e-8f, -2.5f, 0.1f, 1.0f / 3, 7e-5f};
  std::ranges::sort(leaves);
  const std::int64_t sum = sum_of(leaves);
  int orders = 0;
  do EXPECT_EQ(sum_of(leaves), sum);
  while (++orders < 50 && std::ranges::next_permutation(leaves).found);
  double exact = 0;
  for (const float leaf : leaves) exact += leaf;
  EXPECT_NEAR(ExactSums::value_of(sum), exact, 1e-7);
}

TEST(ExactSums, RoundToTheNearestUnit) {
  EXPECT_EQ(sum_of({static_cast<float>(kUnit)}), 1);
  EXPECT_EQ(sum_of({static_cast<float>(0.4 * kUnit)}), 0);
  EXPECT_EQ(sum_of({static_cast<float>(-0.6 * kUnit)}), -1);
}

TEST(ExactSums, TakeTheLargestLeavesWithoutOverflow) {
  constexpr Index kLeaves = 8;
  const float most = std::nextafter(static_cast<float>(ExactSums::kLargest / kLeaves), 0.0f);
  const std::int64_t sum = sum_of(std::vector<float>(kLeaves, most));
  EXPECT_FLOAT_EQ(ExactSums::value_of(sum), kLeaves * most);
  EXPECT_FLOAT_EQ(ExactSums::value_of(sum_of(std::vector<float>(kLeaves, -most))), -kLeaves * most);
}

TEST(ExactSums, SayWhatHasNoSumAndKeepItUntilTheRestart) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          static_cast<float>(ExactSums::kLargest)}) {
    std::vector<float> gradients = {0.5f, bad, 0.25f};
    ExactSums sums(gradients, 1);
    sums.take(std::span(gradients));
    EXPECT_TRUE(sums.broken());
    EXPECT_FALSE(std::isfinite(gradients[1])) << "it is found there";
    sums.restart();
    EXPECT_FALSE(sums.broken());
    EXPECT_EQ(gradients, std::vector<float>(3, 0.0f));
    EXPECT_EQ(std::ranges::count(sums.sums(), 0), 3);
  }
}

/// Of a stretch of the whole, in other memory.
TEST(ExactSums, AddUpPartsWithWhatIsBrokenInThem) {
  std::vector<float> gradients(5), elsewhere(3), leaf = {0.1f, -0.7f, 3e-8f};
  const std::span<float> stretch = std::span(gradients).subspan(1, 3);
  const MatrixView place(elsewhere.data(), 1, 3), row(leaf.data(), 1, 3);
  ExactSums whole(gradients, 4), direct(gradients, 4);
  std::vector<std::int64_t> numbers = {7, 7, 7};
  const auto add_part = [&] {
    ExactSums part(elsewhere, numbers, whole);
    part.add(row, place);
    part.add(row, place);
    part.close();
    whole.add(numbers, stretch);
  };
  for (int times = 0; times < 2; ++times) {
    add_part();
    for (int leaves = 0; leaves < 2; ++leaves) direct.add(row, MatrixView(stretch.data(), 1, 3));
  }
  EXPECT_TRUE(std::ranges::equal(whole.sums(), direct.sums()));
  EXPECT_FALSE(whole.broken());
  leaf[1] = static_cast<float>(ExactSums::kLargest / 4);  // beyond the whole's limit
  add_part();
  EXPECT_TRUE(whole.broken());
  for (std::size_t i = 0; i < gradients.size(); ++i) EXPECT_EQ(std::isfinite(gradients[i]), i != 2) << i;
  EXPECT_EQ(elsewhere, std::vector<float>(3, 0.0f)) << "for the next part";
}

TEST(ExactSums, LeaveAFrozenWeightsGradientAlone) {
  std::vector<float> gradients(2), elsewhere = {3.0f};
  ExactSums sums(gradients, 1);
  sums.take(std::span(elsewhere));
  EXPECT_EQ(elsewhere[0], 3.0f);
  EXPECT_EQ(std::ranges::count(sums.sums(), 0), 2);
}

TEST(RoundedLeaf, GivesSumsThatHaveNoOrder) {
  const std::vector<double> values = {5.563531234567, 1e-9, 3.3333333333, 700.123456789};
  double up = 0, down = 0;
  for (const double value : values) up += rounded_leaf(value);
  for (auto value = values.rbegin(); value != values.rend(); ++value) down += rounded_leaf(*value);
  EXPECT_EQ(up, down);
  EXPECT_NEAR(up, 709.0203213580, 1e-6);
  EXPECT_TRUE(std::isnan(rounded_leaf(std::numeric_limits<double>::quiet_NaN())));
}

}  // namespace
}  // namespace moeloom
