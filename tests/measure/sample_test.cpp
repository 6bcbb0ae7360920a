#include "measure/sample.hpp"

#include "moeloom/comm/communicator.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(MeasureSample, OneRankIsItsWholeWorld) {
  StepSample mine{.seconds = 2, .message_bytes = 3, .row_bytes = 4, .rows = 5, .expert_load = 6};
  mine.phase_seconds[1] = 7;
  const WorldSample sample = gather(mine, Communicator::self());
  EXPECT_EQ(sample.seconds, 2);
  EXPECT_EQ(sample.message_bytes, 3);
  EXPECT_EQ(sample.row_bytes, 4);
  EXPECT_EQ(sample.rank_load, 1);
  EXPECT_EQ(sample.expert_load, 6);
  EXPECT_EQ(sample.phase_seconds[1], 7);
  mine.rows = 0;
  EXPECT_EQ(gather(mine, Communicator::self()).rank_load, 0) << "no row, no load";
}

}  // namespace
}  // namespace moeloom
