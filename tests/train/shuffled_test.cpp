#include "shuffled.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::vector<Index> order_of(Index count, std::uint64_t key) {
  const Dealing dealing(count, key);
  std::vector<Index> order;
  for (Index place = 0; place < count; ++place) order.push_back(dealing(place));
  return order;
}

TEST(Dealing, GivesEveryPlaceOnce) {
  for (const Index count : {0, 1, 2, 3, 4, 5, 9, 16, 17, 100, 1000, 65537})
    for (const Index number : {0, 1, 2}) {
      std::vector<Index> order = order_of(count, dealing_key(3, "test", number)), all(at(count));
      std::ranges::sort(order);
      std::iota(all.begin(), all.end(), Index{0});
      EXPECT_EQ(order, all) << count;
    }
}

/// Of n things in n! orders, each order as often as drawing gives: within 5 standard deviations of 1/n!.
TEST(Dealing, HasEveryOrderOfAFewThingsAboutAsOften) {
  for (const Index count : {2, 3, 4, 5}) {
    double orders = 1;
    for (Index i = 2; i <= count; ++i) orders *= static_cast<double>(i);
    constexpr Index kDraws = 60000;
    std::map<std::vector<Index>, Index> found;
    for (Index i = 0; i < kDraws; ++i) ++found[order_of(count, dealing_key(dealing_key(7, "test", 0), i))];
    EXPECT_EQ(static_cast<double>(found.size()), orders);
    const double expected = kDraws / orders;
    for (const auto& [order, times] : found)
      EXPECT_NEAR(static_cast<double>(times), expected, 5 * std::sqrt(expected)) << count;
  }
}

/// Also where digits are small: each of 17 places goes anywhere about as often.
TEST(Dealing, SendsEachPlaceAnywhereAboutAsOften) {
  constexpr Index kCount = 17, kDraws = 17000;
  std::vector<Index> times(at(kCount * kCount));
  for (Index i = 0; i < kDraws; ++i) {
    const std::vector<Index> order = order_of(kCount, dealing_key(dealing_key(7, "test", 1), i));
    for (Index place = 0; place < kCount; ++place) ++times[at(place * kCount + order[at(place)])];
  }
  for (const Index found : times) EXPECT_NEAR(static_cast<double>(found), 1000, 5 * std::sqrt(1000.0));
}

/// Where a place goes says nothing of where its neighbour goes: of 10^4 places, those whose neighbour comes
/// behind them are a half, and one place in 10^4 stays.
TEST(Dealing, DoesNotKeepNeighboursTogether) {
  const std::vector<Index> order = order_of(10000, dealing_key(3, "test", 5));
  Index rising = 0, staying = 0, beside = 0;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    rising += order[i + 1] > order[i] ? 1 : 0;
    staying += order[i] == static_cast<Index>(i) ? 1 : 0;
    beside += std::abs(order[i + 1] - order[i]) == 1 ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(rising), 5000, 200);
  EXPECT_LT(staying, 10);
  EXPECT_LT(beside, 12);
}

}  // namespace
}  // namespace moeloom
