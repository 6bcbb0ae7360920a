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

}  // namespace
}  // namespace moeloom
