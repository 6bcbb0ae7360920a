#include "dispatch/parcel.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

const std::vector<Index> kPeers = {4, 6, 7};
const std::vector<CrossingCounts> kCounts = {{2, 5, 3}, {0, 0, 0}, {1, 2, 2}};

TEST(Parcel, FollowOneAnotherAndNumberTheirRowsAndCopies) {
  const auto parcels = parcels_of(kPeers, kCounts, &CrossingCounts::tokens, 10, true);
  ASSERT_EQ(parcels.size(), 3u);
  EXPECT_EQ(parcels[0].end(), 2 * 10 + 5);
  EXPECT_EQ(parcels[1].begin, parcels[1].end());
  EXPECT_EQ(parcels[2].peer, 7);
  EXPECT_EQ(parcels[2].begin, 25);
  EXPECT_EQ(parcels[2].first_row, 2);
  std::vector<float> buffer(at(parcels[2].end()));
  const std::span<float> last = parcels[2].of(std::span(buffer));
  EXPECT_EQ(parcels[2].row(last, 0), buffer.data() + 25);
  EXPECT_EQ(&parcels[2].scalar(last, 1), &buffer.back());
}

TEST(Parcel, HoldSumsOnTheWayBackAndNumbersOnlyIfTheyTravel) {
  const auto parcels = parcels_of(kPeers, kCounts, &CrossingCounts::sums, 10, false);
  EXPECT_EQ(parcels[0].end(), 30);
  EXPECT_EQ(parcels[2].first_row, 3);
  EXPECT_EQ(parcels[2].end(), 50);
  EXPECT_TRUE(parcels_of({}, {}, &CrossingCounts::sums, 10, false).empty());
}

}  // namespace
}  // namespace moeloom
