#include "summary/report.hpp"

#include <cmath>
#include <limits>

#include "record/metrics_writer.hpp"
#include "support/count_of.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::count_of;
using testing::read_bytes;
using testing::TemporaryFolder;

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

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Report, IsCompleteForAnyNumberOfSteps) {
  for (const Index count : {0, 1, 2, 99, 700}) {
    const std::string html = report_html(run_of(count), {});
    EXPECT_TRUE(html.starts_with("<!doctype html>") && html.ends_with("</html>\n")) << count;
    EXPECT_EQ(count_of(html, "<svg"), count == 0 ? 0u : 10u) << count;
    for (const char* element : {"svg", "section", "div", "p", "table", "title", "span", "main"})
      EXPECT_EQ(
          count_of(html, std::string("</") + element + ">"),
          count_of(html, std::string("<") + element + ">") + count_of(html, std::string("<") + element + " "))
          << element << " with " << count << " steps";
    for (const char* wrong : {"nan", "inf\"", "NaN"}) EXPECT_FALSE(contains(html, wrong)) << wrong;
  }
}

TEST(Report, ShowsRestartsOnTheLossCurveAndTheShareOfTimeThatTrained) {
  ReportInfo info;
  info.restarts = {
      {.started = 100,
       .ended = 110,
       .reason = "rank 1 on h0 <ended>",
       .steps = 12,
       .from = 10,
       .lost_seconds = 1},
      {.started = 111, .ended = 120, .reason = "stalled", .steps = 40, .from = 30, .lost_seconds = 5}};
  info.time = time_use(run_of(100), info.restarts, 121, 160, 0.5);
  const std::string html = report_html(run_of(100), info);
  EXPECT_EQ(count_of(html, "<g class=\"event\">"), 2u);
  EXPECT_EQ(count_of(html, "restart 1, from step 10\nrank 1 on h0 &lt;ended&gt;"), 1u);
  EXPECT_EQ(count_of(html, "rank 1 on h0 &lt;ended&gt;"), 2u) << "on the curve and in the table";
  EXPECT_EQ(count_of(html, ">83.3 %<"), 2u) << "above, and in the table of time: 50 of 60 s";
  const std::string without = report_html(run_of(100), {});
  for (const char* part : {"class=\"event\"", "Restarts", "it trained"})
    EXPECT_FALSE(contains(without, part)) << part;
}

TEST(Report, NeedsNoNetworkAndNoScript) {
  const std::string html = report_html(run_of(50), {});
  for (const char* outside : {"http://", "https://", "<script", "<link", "@import", "url(", "src="})
    EXPECT_FALSE(contains(html, outside)) << outside;
}

TEST(Report, StaysSmallHoweverLongTheRun) {
  constexpr std::size_t kMegabyte = 1 << 20;
  EXPECT_LT(report_html(run_of(20000), {}).size(), kMegabyte / 2);
}

TEST(Report, EscapesEverythingThatAPersonOrAModelWrote) {
  const std::string attack = "<script>alert(\"x\") & 'y'</script>";
  ReportInfo info;
  info.title = info.prompt = info.sample = info.configuration = info.loss_unit = info.gmm_request = attack;
  info.facts = {{attack, attack}};
  info.kernels = {{attack, true, attack}};
  info.gmm = GmmDecision{false, attack};
  std::vector<StepMetrics> steps = run_of(3);
  steps[0].seconds_by_phase[attack] = 1;
  const std::string html = report_html(steps, info);
  EXPECT_FALSE(contains(html, "<script"));
  EXPECT_FALSE(contains(html, "alert(\"x\")"));
  EXPECT_TRUE(contains(html, "&lt;script&gt;alert(&quot;x&quot;) &amp; &#39;y&#39;&lt;/script&gt;"));
}

TEST(Report, BytesThatAreNoTextAreReplaced) {
  ReportInfo info;
  info.sample = "caf\xC3\xA9 \xFF\xC3 \xED\xA0\x80 \x01 end";
  const std::string html = report_html({}, info);
  EXPECT_TRUE(contains(html, "caf\xC3\xA9 &#xFFFD;&#xFFFD; &#xFFFD;&#xFFFD;&#xFFFD; &#xFFFD; end"));
}

TEST(Report, SaysTheNumbersThatMatter) {
  ReportInfo info;
  info.validation_loss = 1.6942;
  info.loss_unit = "nats per byte";
  info.kernels = {{"fused_moe", false, "this rank holds every expert"},
                  {"fused_rope", false, "fused ops are off"}};
  std::vector<StepMetrics> steps = run_of(100);
  for (std::size_t i = 90; i < 100; ++i) steps[i].loss = 1.5;
  const std::string html = report_html(steps, info);
  for (const char* part : {"<b>1.694</b><span>validation loss, nats per byte",
                           "<b>1.5</b><span>training loss", "<b>5,000</b><span>tokens/s, median",
                           "<b>50 s</b><span>in 100 steps", "not applied", "this rank holds every expert",
                           "fused ops are off", "layer 0", "dense", "experts</td><td>300 ms</td>"})
    EXPECT_TRUE(contains(html, part)) << part;
}

TEST(Report, NamesOptionsAsItsCallerDoes) {
  ReportInfo info;
  info.facts = {{"dispatcher", "hierarchical, by `net` 1Gbit"}};
  info.kernels = {{.id = "fused_rope", .applied = false, .reason = "`kernels` none"}};
  EXPECT_TRUE(contains(report_html({}, info), "by `net` 1Gbit"));
  info.words = [](std::string_view text) {
    std::string shown(text);
    for (char& c : shown)
      if (c == '`') c = '|';
    return shown;
  };
  const std::string html = report_html({}, info);
  EXPECT_TRUE(contains(html, "by |net| 1Gbit"));
  EXPECT_TRUE(contains(html, "|kernels| none"));
}

TEST(Report, ValuesThatAreNotFiniteLeaveAGap) {
  std::vector<StepMetrics> steps = run_of(20);
  for (const std::size_t i : {0u, 7u, 19u}) {
    steps[i].loss = steps[i].grad_norm = steps[i].tokens_per_s = steps[i].seconds = kNan;
    steps[i].val_loss = kNan;
    steps[i].layers.assign(2, {kNan, kNan, kNan, kNan, kNan, kNan});
  }
  const std::string html = report_html(steps, {});
  EXPECT_FALSE(contains(html, "nan"));
  EXPECT_FALSE(contains(report_html({steps[0]}, {}), "nan"));
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
  EXPECT_EQ(read_bytes(folder / "report.html"), report_html(run_of(12), {}));
}

}  // namespace
}  // namespace moeloom
