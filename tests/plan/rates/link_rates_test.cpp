#include "rates/link_rates.hpp"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(LinkRates, EachTwoHostsMeetOnceAndNoneIsInTwoPairsOfARound) {
  for (const Index hosts : {2, 3, 4, 5, 8, 9, 64}) {
    std::set<std::pair<Index, Index>> met;
    for (Index round = 0; round < hosts - 1 + hosts % 2; ++round) {
      Index resting = 0;
      for (Index host = 0; host < hosts; ++host) {
        const std::optional<Index> partner = partner_of(host, round, hosts);
        resting += partner ? 0 : 1;
        if (!partner) continue;
        ASSERT_TRUE(*partner >= 0 && *partner < hosts && *partner != host)
            << hosts << " hosts, round " << round;
        EXPECT_EQ(partner_of(*partner, round, hosts), host);
        if (host < *partner) {
          EXPECT_TRUE(met.emplace(host, *partner).second) << "they have met before";
        }
      }
      EXPECT_EQ(resting, hosts % 2);
    }
    EXPECT_EQ(std::ssize(met), hosts * (hosts - 1) / 2);
  }
}

TEST(LinkRates, AHostsLinkIsAsFastAsItsFastestPair) {
  const std::vector<double> links = {100, 20, 90, 60};
  std::vector<double> pairs(16, 0);
  for (Index a = 0; a < 4; ++a)
    for (Index b = 0; b < 4; ++b)
      if (a != b) pairs[at(4 * a + b)] = std::min(links[at(a)], links[at(b)]);
  EXPECT_EQ(link_rates(pairs, 4), (std::vector<double>{90, 20, 90, 60}));
  pairs[1 * 4 + 0] = 15;  // one direction's number is lower
  pairs[1 * 4 + 2] = pairs[1 * 4 + 3] = 0;
  EXPECT_EQ(link_rates(pairs, 4)[1], 15);
}

TEST(LinkRates, EveryRankMeasuresTheSamePositiveRateOfEach) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "nobody to meet";
  const std::vector<double> links = measure_links(world);
  ASSERT_EQ(std::ssize(links), world.size());
  for (const double rate : links) {
    EXPECT_GT(rate, 0);
    EXPECT_EQ(world.all_max(rate), rate);
    EXPECT_EQ(-world.all_max(-rate), rate);
  }
}

TEST(LinkRates, OneNodeHasNoSlowestLink) {
  MachineRates rates;
  find_slowest_link(Communicator::world(), rates);
  EXPECT_EQ(rates.slowest_host, "");
  EXPECT_EQ(rates.link_median_bytes_per_second, 0);
  EXPECT_FALSE(rates.unequal_links());
}

}  // namespace
}  // namespace moeloom
