#include "summary/report.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "record/metrics_writer.hpp"
#include "support/count_of.hpp"
#include "support/files.hpp"
#include "support/sections.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::count_of;
using testing::has_row;
using testing::read_bytes;
using testing::section_in;
using testing::TemporaryFolder;
using testing::titles_of;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<StepMetrics> run_of(Index count) {
  std::vector<StepMetrics> steps;
  for (Index i = 0; i < count; ++i) {
    StepMetrics step;
    step.step = i;
    step.loss = 2 + std::exp(-static_cast<double>(i) / 50);
    step.aux_loss = 1;
    step.grad_norm = 1;
    step.learning_rate = 1e-3;
    step.tokens_per_s = 5000;
    step.seconds = 0.5;
    step.seconds_by_phase = {{"experts", 0.3}, {"attention", 0.2}};
    step.layers = {{}, {.max_over_mean = 1.5, .load_cv = 0.5, .load_gini = 0.25, .entropy = 1}};
    if (i % 10 == 9) step.val_loss = 2.5;
    steps.push_back(step);
  }
  return steps;
}

std::string html_of(const std::vector<StepMetrics>& steps, const ReportInfo& info) {
  return page_html(report_of(steps, info), {});
}

bool has_card(const Report& report, const std::string& value, const std::string& what) {
  return std::ranges::any_of(
      report.cards, [&](const Card& card) { return card.value == value && card.what.starts_with(what); });
}

TEST(Report, IsCompleteForAnyNumberOfSteps) {
  for (const Index count : {1, 2, 99, 700}) {
    const Report report = report_of(run_of(count), {});
    EXPECT_EQ(titles_of(report.sections),
              (std::vector<std::string>{"", "", "Time by phase", "Steps", "Layers"}))
        << count;
    EXPECT_EQ(report.drawn.objects("runs").size(), 1u);
    const std::string html = html_of(run_of(count), {});
    for (const char* wrong : {"nan", "inf\"", "NaN"})
      EXPECT_EQ(count_of(html.substr(0, html.find("<script")), wrong), 0u) << wrong;
  }
  EXPECT_EQ(titles_of(report_of({}, {}).sections), (std::vector<std::string>{"No steps", ""}));
}

TEST(Report, ShowsRestartsAndTheShareOfTimeThatTrained) {
  ReportInfo info;
  info.restarts = {
      {.started = 100, .ended = 110, .reason = "rank 1 ended", .steps = 12, .from = 10, .lost_seconds = 1},
      {.started = 111, .ended = 120, .reason = "stalled", .steps = 40, .from = 30, .lost_seconds = 5}};
  info.time = time_use(run_of(100), info.restarts, 121, 160, 0.5);
  const Report report = report_of(run_of(100), info);
  EXPECT_EQ(report.drawn.objects("runs").at(0).objects("restarts").size(), 2u);
  EXPECT_TRUE(has_card(report, "83.3 %", "of 1:00 it trained"));
  EXPECT_EQ(section_in(report.sections, "Restarts").table.rows.size(), 2u);
  EXPECT_EQ(section_in(report.sections, "Time").table.rows.size(), 7u);
}

TEST(Report, StaysSmallHoweverLongTheRun) {
  constexpr std::size_t kMegabyte = 1 << 20;
  EXPECT_LT(html_of(run_of(20000), {}).size(), kMegabyte / 2);
}

TEST(Report, SaysTheNumbersThatMatter) {
  ReportInfo info;
  info.loss_unit = "nats per byte";
  info.kernels = {{"fused_moe", false, "this rank holds every expert"}, {"fused_rope", true, "it fits"}};
  info.gmm = GmmDecision{false, "one rank"};
  info.gmm_request = "auto";
  std::vector<StepMetrics> steps = run_of(100);
  for (std::size_t i = 90; i < 100; ++i) steps[i].loss = 1.5;
  Report report = report_of(steps, info);
  EXPECT_TRUE(has_card(report, "2.5", "validation loss, nats per byte")) << "the last of the metrics";
  info.validation_loss = 1.6942;
  report = report_of(steps, info);
  EXPECT_TRUE(has_card(report, "1.694", "validation loss, nats per byte"));
  EXPECT_TRUE(has_card(report, "1.5", "training loss, nats per byte"));
  EXPECT_TRUE(has_card(report, "5,000", "tokens/s, median"));
  EXPECT_TRUE(has_card(report, "50 s", "in 100 steps"));
  const Table kernels = section_in(report.sections, "Kernels").table;
  EXPECT_TRUE(has_row(kernels, {"fused_moe", "not applied", "this rank holds every expert"}));
  EXPECT_TRUE(has_row(kernels, {"fused_rope", "applied", "it fits"}));
  EXPECT_TRUE(has_row(kernels, {"grouped matmul", "not applied", "one rank (auto)"}));
}

TEST(Report, SaysHowFarARunThatGoesOnHasCome) {
  ReportInfo info;
  info.goes_on_to = 600;
  info.words = [](std::string_view text) { return "worded" + std::string(text); };
  Report report = report_of(run_of(40), info);
  EXPECT_TRUE(report.status.starts_with("The run goes on: 40 of 600 steps, ")) << report.status;
  EXPECT_TRUE(!report.has_ended && report.reload_seconds > 0);
  info.stopped = true;
  report = report_of(run_of(40), info);
  EXPECT_TRUE(report.status.starts_with("The run was stopped: 40 of 600 steps, ")) << report.status;
  EXPECT_TRUE(report.status.ends_with("worded. `resume` goes on with it.")) << report.status;
  EXPECT_TRUE(!report.has_ended && report.reload_seconds == 0);
  report = report_of(run_of(40), {});
  EXPECT_TRUE(report.status.empty() && report.has_ended && report.reload_seconds == 0);
}

TEST(Report, NamesOptionsAsItsCallerDoes) {
  ReportInfo info;
  info.facts = {{"dispatcher", "hierarchical, by `net` 1Gbit"}};
  info.kernels = {{.id = "fused_rope", .applied = false, .reason = "`kernels` none"}};
  EXPECT_TRUE(has_row(section_in(report_of({}, info).sections, "The run").table,
                      {"dispatcher", "hierarchical, by `net` 1Gbit"}));
  info.words = [](std::string_view text) {
    std::string shown(text);
    std::ranges::replace(shown, '`', '|');
    return shown;
  };
  const Report report = report_of({}, info);
  EXPECT_TRUE(
      has_row(section_in(report.sections, "The run").table, {"dispatcher", "hierarchical, by |net| 1Gbit"}));
  EXPECT_TRUE(
      has_row(section_in(report.sections, "Kernels").table, {"fused_rope", "not applied", "|kernels| none"}));
}

TEST(Report, ValuesThatAreNotFiniteLeaveAGap) {
  std::vector<StepMetrics> steps = run_of(20);
  for (const std::size_t i : {0u, 7u, 19u}) {
    steps[i].loss = steps[i].grad_norm = steps[i].tokens_per_s = steps[i].seconds = kNan;
    steps[i].val_loss = kNan;
    steps[i].layers.assign(2, {kNan, kNan, kNan, kNan, kNan, kNan});
  }
  for (const std::string& html : {html_of(steps, {}), html_of({steps[0]}, {})}) {
    EXPECT_EQ(count_of(html.substr(0, html.find("<script")), "nan"), 0u);
    EXPECT_EQ(count_of(html, ":nan"), 0u);
  }
}

TEST(Report, TheTrainingLossIsTheMeanOfTheLastFiniteSteps) {
  EXPECT_TRUE(std::isnan(last_loss({})));
  std::vector<StepMetrics> steps = run_of(40);
  for (std::size_t i = 36; i < 40; ++i) steps[i].loss = static_cast<double>(i);
  EXPECT_EQ(last_loss(steps), 37.5);
  steps[38].loss = kNan;
  EXPECT_EQ(last_loss(steps), (36 + 37 + 39) / 3.0);
  for (std::size_t i = 36; i < 40; ++i) steps[i].loss = kNan;
  EXPECT_TRUE(std::isnan(last_loss(steps)));
}

TEST(Report, IsWrittenFromTheMetricsOfARun) {
  const TemporaryFolder folder;
  {
    MetricsWriter writer(folder / "metrics.jsonl", 0);
    for (const StepMetrics& step : run_of(12)) writer.append(step);
  }
  write_report(folder / "report.html", folder / "metrics.jsonl", {});
  EXPECT_EQ(read_bytes(folder / "report.html"), page_html(report_of(run_of(12), {})));
}

}  // namespace
}  // namespace moeloom
