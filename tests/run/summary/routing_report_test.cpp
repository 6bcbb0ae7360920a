#include "summary/routing_report.hpp"

#include <limits>

#include "support/count_of.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::count_of;

CollapseEvent event_at(Index step, Index layer, bool begins, Index since) {
  return {
      .begins = begins, .step = step, .layer = layer, .expert = 5, .share_of_tokens = 0.83, .since = since};
}

std::vector<StepMetrics> uneven_run(Index count) {
  std::vector<StepMetrics> steps;
  for (Index i = 0; i < count; ++i) {
    StepMetrics step;
    step.step = i;
    step.layers = {{},
                   {.max_over_mean = 3.3,
                    .load_cv = 1.1,
                    .load_gini = 0.6,
                    .dead_experts = 2,
                    .entropy = 1.2,
                    .dropped_share = 0.05}};
    steps.push_back(step);
  }
  return steps;
}

ReportInfo after(std::vector<std::vector<Index>> last_rows) {
  ReportInfo info;
  info.num_experts = 8;
  info.last_rows = std::move(last_rows);
  return info;
}

TEST(RoutingReport, HasAMapForEachFigure) {
  const std::string html = routing_sections(uneven_run(10), after({{}, {0, 0, 0, 7}}));
  EXPECT_EQ(count_of(html, "<svg"), 7u);
  struct Case {
    const char* text;
    std::size_t count;
  };
  for (const Case& c : {Case{"fullest expert 3.3 x the average</title>", 10},
                        {"1.2 nats</title>", 10},
                        {"experts without a row: 2</title>", 10},
                        {"Gini 0.6</title>", 10},
                        {"CV 1.1</title>", 10},
                        {"dropped 5 %</title>", 10},
                        {"expert 3\n4 x the average expert&#39;s rows</title>", 1},
                        {"2.08 (all experts alike)", 1},
                        {">dense</text>", 7}})
    EXPECT_EQ(count_of(html, c.text), c.count) << c.text;
}

TEST(RoutingReport, LeavesOutWhatWasNotMeasuredOrNeverHappened) {
  std::vector<StepMetrics> steps = uneven_run(3);
  for (StepMetrics& step : steps) step.layers[1] = {.max_over_mean = 1};
  EXPECT_EQ(count_of(routing_sections(steps, {}), "<svg"), 1u) << "balanced, nothing dropped, no entropy";
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (StepMetrics& step : steps) step.layers[1] = {1.5, kNan, kNan, kNan, kNan, kNan};
  EXPECT_EQ(count_of(routing_sections(steps, {}), "<svg"), 1u) << "metrics of before these figures";
  for (StepMetrics& step : steps) step.layers = {{}, {}};
  EXPECT_EQ(routing_sections(steps, {}), "") << "a dense model";
}

TEST(RoutingReport, AStepWithoutRowsIsAGap) {
  std::vector<StepMetrics> steps = uneven_run(3);
  steps[1].layers[1] = {};
  EXPECT_EQ(count_of(routing_sections(steps, {}), "Gini 0.6</title>"), 2u);
}

TEST(RoutingReport, AFullestExpertAmongManyIsSeen) {
  std::vector<Index> rows(512, 10);
  rows[300] = 5000;
  const std::string html = routing_sections(uneven_run(1), after({{}, rows}));
  EXPECT_EQ(count_of(html, "254 x the average") + count_of(html, "253 x the average"), 1u);
}

TEST(Collapses, LastFromTheirWarningToTheirEnd) {
  std::vector<StepMetrics> steps = uneven_run(10);
  steps[2].collapse = {event_at(2, 1, true, 2), event_at(2, 0, true, 2)};
  steps[5].collapse = {event_at(5, 1, false, 2)};
  steps[7].collapse = {event_at(7, 1, true, 7)};
  const auto collapses = collapses_of(steps);
  ASSERT_EQ(collapses.size(), 3u);
  EXPECT_EQ(collapses[0].ended, 5);
  EXPECT_FALSE(collapses[1].ended || collapses[2].ended);
  const std::string html = routing_sections(steps, {});
  EXPECT_EQ(count_of(html, "class=\"mark\""), 3u);
  EXPECT_EQ(count_of(html, "<td>1</td><td>5</td><td>chosen by 83 % of tokens</td><td>2</td><td>5</td>"), 1u);
  EXPECT_EQ(count_of(html, "<td>7</td><td>has not ended</td>"), 1u);
  const auto rest = collapses_of({steps.begin() + 3, steps.end()});
  ASSERT_EQ(rest.size(), 2u) << "metrics that begin in the middle of a collapse";
  EXPECT_EQ(rest[0].begin.step, 2);
  EXPECT_EQ(rest[0].ended, 5);
}

}  // namespace
}  // namespace moeloom
