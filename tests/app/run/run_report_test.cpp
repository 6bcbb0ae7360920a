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

TEST(LoadMaxOverMean, IsZeroForALayerWithoutRows) {
  EXPECT_EQ(load_max_over_mean({{}, {0, 0}, {3, 1, 0, 0}}), (std::vector<double>{0, 0, 3}));
}

TEST(Printable, KeepsLineEndsAndTabsAmongControlCharacters) {
  EXPECT_EQ(printable("a\nb\t\x1b[0m\x01"), "a\nb\t?[0m?");
}

}  // namespace
}  // namespace moeloom
