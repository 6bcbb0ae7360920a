#include "report/columns.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

using Values = std::vector<double>;

TEST(Columns, OfManyValuesKeepExtremesMeansAndTheLast) {
  Values values;
  for (int i = 0; i < 400'000; ++i) values.push_back(2 + std::sin(static_cast<double>(i) * i));
  values[123'456] = 99;
  values[300'001] = -99;
  values.back() = 5;
  const Values mean = thinned(values, 1500, Keep::kMean), least = thinned(values, 1500, Keep::kLeast),
               largest = thinned(values, 1500, Keep::kLargest);
  ASSERT_EQ(mean.size(), 1500u);
  EXPECT_EQ(std::ranges::max(largest), 99);
  EXPECT_EQ(std::ranges::min(least), -99);
  EXPECT_EQ(thinned(values, 1500, Keep::kLast).back(), 5);
  for (std::size_t i = 0; i < mean.size(); ++i) {
    ASSERT_LE(least[i], mean[i]);
    ASSERT_LE(mean[i], largest[i]);
  }
  EXPECT_NEAR(kept(mean, Keep::kMean), kept(values, Keep::kMean), 1e-3)
      << "stretches differ by one in length";
}

TEST(Columns, OfFewValuesAreThese) {
  for (const Values& values : {Values(), Values{3}, Values{1, 2, 7}})
    for (const Keep keep : {Keep::kMean, Keep::kLeast, Keep::kLargest, Keep::kLast})
      EXPECT_EQ(thinned(values, 3, keep), values);
  EXPECT_EQ(thinned({1, 3, 5, 7, 9}, 2, Keep::kMean), (Values{2, 7}));
}

TEST(Columns, PassOverWhatIsNotFinite) {
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(thinned({kGap, 4, infinite, 2}, 1, Keep::kMean), Values{3});
  EXPECT_EQ(thinned({kGap, 4, infinite, 2}, 1, Keep::kLargest), Values{4});
  EXPECT_EQ(thinned({-infinite, 4, kGap, 2}, 1, Keep::kLeast), Values{2});
  EXPECT_TRUE(std::isnan(thinned({kGap, kGap, 1}, 2, Keep::kMean).front()));
  EXPECT_TRUE(std::isnan(kept({}, Keep::kLast)));
}

TEST(Columns, AreRoundedToTheirDigits) {
  EXPECT_EQ(rounded({1.23456789, -98765.4321, 0}, 6), (Values{1.23457, -98765.4, 0}));
  EXPECT_TRUE(std::isnan(rounded({kGap}, 6)[0]));
}

}  // namespace
}  // namespace moeloom
