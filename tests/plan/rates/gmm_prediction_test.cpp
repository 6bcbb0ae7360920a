#include "plan/rates/gmm_prediction.hpp"

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(GmmPrediction, IsMeasuredOnceAndThenKnown) {
  const testing::TemporaryFolder folder;
  int measurements = 0;
  const RateSource source{.file = folder / "rates.json", .before_measuring = [&] { ++measurements; }};
  const GmmCase small{.hidden = 16, .inter = 8, .experts = 2, .rows_per_expert = 4, .sources = 1};
  const GmmPrediction first = find_prediction(small, 1, source);
  EXPECT_GT(first.loop_seconds, 0);
  EXPECT_EQ(find_prediction(small, 1, source).gmm_seconds, first.gmm_seconds);
  EXPECT_EQ(measurements, 1);
}

}  // namespace
}  // namespace moeloom
