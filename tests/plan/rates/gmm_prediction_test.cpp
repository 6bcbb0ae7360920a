#include "moeloom/plan/rates/gmm_prediction.hpp"

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(GmmPrediction, IsRankZerosOnEveryRankAndKnownTheNextTime) {
  const Communicator world = Communicator::world();
  const testing::TemporaryFolder folder;
  const RateSource source{.file = folder / "rates.json"};
  const GmmCase small{.hidden = 16, .inter = 8, .experts = 2, .rows_per_expert = 4, .sources = 1};
  const FoundPrediction first = agree_on_prediction(small, 1, source, world);
  const std::vector<double> mine = {first.seconds.loop_seconds, first.seconds.gmm_seconds,
                                    first.seconds.packed_seconds};
  const std::vector<double> all = world.all_gather(std::span<const double>(mine));
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], mine[i % mine.size()]);
  EXPECT_GT(first.seconds.loop_seconds, 0);
  EXPECT_EQ(first.rates, world.rank() == 0 ? "measured" : "");
  const FoundPrediction again = agree_on_prediction(small, 1, source, world);
  EXPECT_EQ(again.rates, world.rank() == 0 ? "cached" : "");
  EXPECT_EQ(again.seconds.gmm_seconds, first.seconds.gmm_seconds);
}

}  // namespace
}  // namespace moeloom
