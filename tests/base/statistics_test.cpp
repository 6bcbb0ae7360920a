#include "moeloom/base/statistics.hpp"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Statistics, ASpreadIsTheNearestRanks) {
  const Spread spread = spread_of({11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
  EXPECT_EQ(spread.p10, 2);
  EXPECT_EQ(spread.median, 6);
  EXPECT_EQ(spread.p90, 10);
  const Spread one = spread_of({5});
  EXPECT_TRUE(one.p10 == 5 && one.median == 5 && one.p90 == 5);
  EXPECT_EQ(median({4, 1, 3, 2}), 3) << "of two in the middle the upper";
}

TEST(Statistics, WhatIsNotFiniteDoesNotCount) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(median({kNan, 3, std::numeric_limits<double>::infinity(), 1, 2}), 2);
  EXPECT_TRUE(std::isnan(median({kNan})));
  EXPECT_TRUE(std::isnan(spread_of({}).p90));
}

TEST(Statistics, UnevenCountsAreToldByTheLargestOverTheMean) {
  EXPECT_EQ(max_over_mean({3, 1, 0, 0}), 3);
  EXPECT_EQ(max_over_mean({2, 2}), 1);
  EXPECT_EQ(max_over_mean({0, 0}), 0);
  EXPECT_EQ(max_over_mean({}), 0);
}

TEST(Statistics, UnevenCountsAreToldByTheirVariationAndTheirGini) {
  struct Case {
    std::vector<Index> counts;
    double variation;
    double gini;
  };
  const std::vector<Case> cases = {
      {{}, 0, 0},
      {{0, 0}, 0, 0},
      {{7}, 0, 0},
      {{2, 2, 2, 2}, 0, 0},
      {{0, 12, 0, 0}, std::sqrt(3.0), 0.75},       // everything with one
      {{0, 6, 6, 0}, 1, 0.5},                      // nothing with half of them
      {{3, 1}, 0.5, 0.25},                         // mean absolute difference 1, over twice the mean 2
      {{1, 2, 3, 4}, std::sqrt(1.25) / 2.5, 0.25}  // 20 differences in 16 pairs, over 2 * 2.5
  };
  for (const Case& c : cases) {
    EXPECT_DOUBLE_EQ(coefficient_of_variation(c.counts), c.variation) << ::testing::PrintToString(c.counts);
    EXPECT_DOUBLE_EQ(gini(c.counts), c.gini) << ::testing::PrintToString(c.counts);
  }
}

TEST(Statistics, TheGiniIsHalfTheMeanDifferenceOfTwoCountsInAnyOrder) {
  const std::vector<Index> counts = {9, 0, 4, 4, 1000, 17, 3, 0, 62};
  double differences = 0;
  double sum = 0;
  for (const Index a : counts) {
    sum += static_cast<double>(a);
    for (const Index b : counts) differences += std::fabs(static_cast<double>(a - b));
  }
  EXPECT_DOUBLE_EQ(gini(counts), differences / (2 * static_cast<double>(counts.size()) * sum));
}

}  // namespace
}  // namespace moeloom
