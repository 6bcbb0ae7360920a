#include "summary/collapse_report.hpp"

#include "support/sections.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::has_row;

CollapseEvent event_at(Index step, Index layer, bool begins, Index since) {
  return {
      .begins = begins, .step = step, .layer = layer, .expert = 5, .share_of_tokens = 0.83, .since = since};
}

std::vector<StepMetrics> steps_of_run(Index count) {
  std::vector<StepMetrics> steps(static_cast<std::size_t>(count));
  for (Index i = 0; i < count; ++i) steps[static_cast<std::size_t>(i)].step = i;
  return steps;
}

TEST(Collapses, LastFromTheirWarningToTheirEnd) {
  std::vector<StepMetrics> steps = steps_of_run(10);
  steps[2].collapse = {event_at(2, 1, true, 2), event_at(2, 0, true, 2)};
  steps[5].collapse = {event_at(5, 1, false, 2)};
  steps[7].collapse = {event_at(7, 1, true, 7)};
  const auto collapses = collapses_of(steps);
  ASSERT_EQ(collapses.size(), 3u);
  EXPECT_EQ(collapses[0].ended, 5);
  EXPECT_FALSE(collapses[1].ended || collapses[2].ended);
  const Table table = collapse_section(steps).table;
  EXPECT_TRUE(has_row(table, {"1", "5", "chosen by 83 % of tokens", "2", "5"}));
  EXPECT_TRUE(has_row(table, {"1", "5", "chosen by 83 % of tokens", "7", "has not ended"}));
  EXPECT_TRUE(collapse_section(steps_of_run(2)).is_empty());
  const auto rest = collapses_of({steps.begin() + 3, steps.end()});
  ASSERT_EQ(rest.size(), 2u) << "metrics that begin in the middle of a collapse";
  EXPECT_EQ(rest[0].begin.step, 2);
  EXPECT_EQ(rest[0].ended, 5);
}

}  // namespace
}  // namespace moeloom
