#include "run/run_report.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TrainerState after(Index steps) {
  TrainerState state;
  state.step = steps;
  state.global_batch = 8;
  state.sequence_length = 16;
  return state;
}

StepMetrics metrics_of(Index step, Index tokens_seen) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.tokens_seen = tokens_seen;
  return metrics;
}

TEST(TokensBefore, AreThoseOfTheEarlierMetrics) {
  EXPECT_EQ(tokens_before({metrics_of(0, 64), metrics_of(1, 192)}, after(2)), 192);
}

TEST(TokensBefore, AreCountedFromTheStateWhereMetricsAreMissing) {
  EXPECT_EQ(tokens_before({}, after(3)), 3 * 8 * 16);
  EXPECT_EQ(tokens_before({metrics_of(0, 64)}, after(3)), 3 * 8 * 16) << "a step is missing";
  EXPECT_EQ(tokens_before({}, after(0)), 0);
}

TEST(MeasureStep, TakesEachNumberOfARankToItsPlace) {
  StepReport report;
  report.step = 7;
  report.lm_loss = 3.5;
  report.tokens = 128;
  report.seconds = 0.5;
  report.message_bytes = (Index{1} << 40) + 1;
  report.dispatch = {11, 12};
  report.pool = {13, 14};
  report.rebalance = {.verdicts = {3, 4, 5, 6},
                      .rows = 100,
                      .padded_rows_before = 180,
                      .padded_rows_after = 110,
                      .replicas = 31,
                      .rows_moved = 32,
                      .weight_bytes = 33,
                      .gradient_bytes = 34};
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    report.phase_seconds[phase] = 0.25 * static_cast<double>(phase);
  const auto [metrics, signal] = measure_step(report, 64, 21, 15, Communicator::self());
  EXPECT_EQ(signal, 15);
  EXPECT_EQ(metrics.step, 7);
  EXPECT_EQ(metrics.loss, 3.5);
  EXPECT_EQ(metrics.seconds, 0.5);
  EXPECT_EQ(metrics.tokens_per_s, 256);
  EXPECT_EQ(metrics.tokens_seen, 192);
  EXPECT_EQ(metrics.message_bytes, (Index{1} << 40) + 1);
  EXPECT_EQ(metrics.rss_bytes, 21);
  EXPECT_EQ(metrics.network_bytes, 11);
  EXPECT_EQ(metrics.row_bytes, 12);
  EXPECT_EQ(metrics.pool_tasks, 13);
  EXPECT_EQ(metrics.pool_shared, 14);
  ASSERT_TRUE(metrics.rebalance);
  EXPECT_EQ(metrics.rebalance->even, 3);
  EXPECT_EQ(metrics.rebalance->does_not_pay, 4);
  EXPECT_EQ(metrics.rebalance->no_room, 5);
  EXPECT_EQ(metrics.rebalance->made, 6);
  EXPECT_EQ(metrics.rebalance->replicas, 31);
  EXPECT_EQ(metrics.rebalance->rows_moved, 32);
  EXPECT_EQ(metrics.rebalance->weight_bytes, 33);
  EXPECT_EQ(metrics.rebalance->gradient_bytes, 34);
  EXPECT_EQ(metrics.rebalance->load_before, 1.8);
  EXPECT_EQ(metrics.rebalance->load_after, 1.1);
  ASSERT_EQ(metrics.seconds_by_phase.size(), kPhases);
  for (std::size_t phase = 0; phase < kPhases; ++phase)
    EXPECT_EQ(metrics.seconds_by_phase.at(std::string(name_of(static_cast<Phase>(phase)))),
              report.phase_seconds[phase]);
}

TEST(MeasureStep, SaysNothingOfRebalancingThatWasOff) {
  EXPECT_FALSE(measure_step({}, 0, 0, 0, Communicator::self()).metrics.rebalance);
}

TEST(LoadMaxOverMean, IsZeroForALayerWithoutRows) {
  EXPECT_EQ(load_max_over_mean({{}, {0, 0}, {3, 1, 0, 0}}), (std::vector<double>{0, 0, 3}));
}

TEST(Printable, KeepsLineEndsAndTabsAmongControlCharacters) {
  EXPECT_EQ(printable("a\nb\t\x1b[0m\x01"), "a\nb\t?[0m?");
}

}  // namespace
}  // namespace moeloom
