#include "moeloom/measure/sample.hpp"

#include "moeloom/comm/communicator.hpp"
#include "moeloom/moe/dispatch/dispatch_plan.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(BenchEpSample, ARowIsTheMedianOfTimesAndTheMeanOfTheRest) {
  EpRow row;
  row.tokens = 600;
  std::vector<WorldSample> samples(3);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto n = static_cast<double>(i + 1);
    samples[i] = {.seconds = 0.1 * n * n,
                  .message_bytes = 10 * n,
                  .row_bytes = 20 * n,
                  .expert_load = n,
                  .rank_load = 2 * n};
    samples[i].phase_seconds[2] = 0.01 * n;
  }
  summarise(samples, row);
  EXPECT_DOUBLE_EQ(row.step_ms.p10, 100);
  EXPECT_DOUBLE_EQ(row.step_ms.median, 400);
  EXPECT_DOUBLE_EQ(row.step_ms.p90, 900);
  EXPECT_DOUBLE_EQ(row.tokens_per_s, 1500);
  EXPECT_DOUBLE_EQ(row.phase_ms[2], 20);
  EXPECT_EQ(row.message_bytes, 20);
  EXPECT_EQ(row.row_bytes, 40);
  EXPECT_EQ(row.expert_load, 2);
  EXPECT_EQ(row.rank_load, 4);
  EXPECT_EQ(row.samples, 3);
}

TEST(BenchEpSample, OneRankIsItsWholeWorld) {
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

TEST(BenchEpSample, LogicalBytesAreTheRowsThatLeaveOverFourExchanges) {
  DispatchPlan plan;
  plan.sent_per_rank = {5, 7, 11};
  EXPECT_EQ(row_bytes(plan, 1, 64), 4 * (5 + 11) * 64 * 4);
  plan.sent_per_rank = {5};
  EXPECT_EQ(row_bytes(plan, 0, 64), 0);
}

}  // namespace
}  // namespace moeloom
