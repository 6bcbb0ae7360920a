#include "measure/sweep/page.hpp"

#include "report/html.hpp"

#include "support/count_of.hpp"
#include "sweep/answers.hpp"
#include "sweep/rows_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::count_of;
using testing::rows_of_world;

/// Different times for every point.
double ms_of(const EpPoint& point) {
  return 100.0 / static_cast<double>(point.ep) + 7.3 * static_cast<double>(point.gmm) +
         3.1 * static_cast<double>(point.mode) + 1.7 * static_cast<double>(point.workload.made_up()) +
         11.9 * static_cast<double>(point.ranks) + 0.9 * static_cast<double>(point.scaling);
}

std::vector<EpRow> sweep(std::vector<Index> worlds, std::vector<Workload> workloads = {Workload::kBalanced}) {
  SweepSettings options;
  options.workloads = std::move(workloads);
  std::vector<EpRow> rows;
  for (const Index ranks : worlds)
    for (EpRow& row : rows_of_world(options, ranks, ms_of)) rows.push_back(std::move(row));
  return rows;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// What a reader without scripts has of it.
std::string page_of(const std::vector<EpRow>& rows, const std::string& settings) {
  const std::string html = page_html(sweep_report(rows, settings), {});
  return html.substr(0, html.find("<script"));
}

TEST(SweepReport, IsWholeForAnySweep) {
  for (const auto& rows : {std::vector<EpRow>(), sweep({1}), sweep({4}), sweep({1, 2, 4}),
                           sweep({2}, {kWorkloads.begin(), kWorkloads.end()})}) {
    const std::string html = page_of(rows, "settings");
    for (const std::string element : {"section", "div", "p", "table", "title", "span", "td", "th", "tr"})
      EXPECT_EQ(count_of(html, "</" + element + ">"),
                count_of(html, "<" + element + ">") + count_of(html, "<" + element + " "))
          << element << " with " << rows.size() << " rows";
    for (const char* wrong : {"nan", "inf\"", "NaN", "http:", "<link", "url(", "src="})
      EXPECT_FALSE(contains(html, wrong)) << wrong;
  }
}

TEST(SweepReport, NamesWhatWasSkippedAndComparesTheRest) {
  std::vector<EpRow> rows = sweep({2});
  const std::string whole = page_of(rows, "settings");
  EpRow refused = row_of({.ranks = 2, .ep = 2}, rows.front());
  refused.step_ms = {};
  refused.skipped = "2 < 3 nodes";
  rows.push_back(refused);
  const std::string html = page_of(rows, "settings");
  EXPECT_EQ(count_of(html, "<td>" + html_escaped(refused.point) + "</td><td>2 &lt; 3 nodes</td>"), 1u);
  EXPECT_LT(whole.size(), html.size());
  const std::size_t answers = html.find("All points");
  EXPECT_EQ(html.substr(0, answers), whole.substr(0, answers)) << "no answer is drawn from it";
  EXPECT_TRUE(contains(page_of({refused}, "settings"), "2 &lt; 3 nodes"));
}

TEST(SweepReport, HoldsEveryNumberOfEveryRow) {
  const std::vector<EpRow> rows = sweep({1, 2, 4});
  const std::string html = page_of(rows, "settings");
  EXPECT_EQ(count_of(html, "<td>" + rows.front().mode + "</td>"), 2u * 3 * (1 + 2 + 3)) << "a line a row";
  const auto bytes = [](Index count) { return readable_bytes(static_cast<double>(count)); };
  for (const EpRow& row : rows) {
    std::string cells;
    for (const std::string& text :
         {std::to_string(row.dp), std::to_string(row.ep), row.gmm,
          std::string(row.gmm_applied ? "yes" : "no"), std::string("auto"), std::string("alltoall"),
          std::string("fp32"), std::string("fp32"), readable(static_cast<double>(row.tokens), 7),
          readable(row.step_ms.median, 4), readable(row.step_ms.p10, 4), readable(row.step_ms.p90, 4),
          readable(row.tokens_per_s, 4), std::string("0.83"), std::string("0.81"), std::string("0.85")})
      cells += "<td>" + text + "</td>";
    for (const double ms : row.phase_ms) cells += "<td>" + readable(ms, 4) + "</td>";
    for (const Index of : {row.memory_bytes, row.message_bytes, row.row_bytes})
      cells += "<td>" + bytes(of) + "</td>";
    cells +=
        "<td>1.37</td><td>1.19</td><td>0.213</td><td>0.087</td><td>1.23e-06</td><td>5e-05</td><td>5.432</"
        "td><td>0.0125</td><td>123.4</td><td>0.617</td><td>9</td>";
    EXPECT_TRUE(contains(html, cells)) << cells;
  }
}

TEST(SweepReport, AnswersFromTheLargestWorldForEachModeAndScaling) {
  const std::vector<EpRow> rows = sweep({1, 2, 4});
  const std::string html = page_of(rows, "settings");
  std::size_t answered = 0;
  for (const EpView& view : views_of(rows)) {
    const bool shown = contains(html, html_escaped(fastest_answer(view)));
    EXPECT_EQ(shown, view.ranks == 4) << view.title();
    if (!shown) continue;
    ++answered;
    EXPECT_TRUE(contains(html, html_escaped(gmm_answer(*gmm_square(view))))) << view.title();
  }
  EXPECT_EQ(answered, 4u);
}

TEST(SweepReport, AnswersFromTheTokensThatWereMeasuredLast) {
  SweepSettings less = testing::layer_alone();
  less.tokens /= 4;
  const std::vector<EpRow> first = rows_of_world(testing::layer_alone(), 2, ms_of);
  std::vector<EpRow> last = rows_of_world(less, 2, [](const EpPoint& point) { return 0.1 * ms_of(point); });
  for (EpRow& row : last) row.measured_at = "2026-01-03T03:04:05Z";
  for (const bool in_order : {false, true}) {
    std::vector<EpRow> rows = in_order ? first : last;
    for (const EpRow& row : in_order ? last : first) rows.push_back(row);
    const std::string html = page_of(rows, "settings");
    EXPECT_TRUE(contains(html, html_escaped(fastest_answer(views_of(last).front())))) << in_order;
    EXPECT_FALSE(contains(html, html_escaped(fastest_answer(views_of(first).front())))) << in_order;
    EXPECT_EQ(count_of(html, "1024 tokens, threads a rank: 1"), 1u) << in_order;
  }
}

TEST(SweepReport, GivesTheScriptEveryRowAndTheViewsToDraw) {
  const std::vector<EpRow> rows = sweep({1, 2, 4}, {Workload::kBalanced, Workload::kBurst});
  const Document drawn = sweep_report(rows, "settings").drawn;
  EXPECT_EQ(drawn.objects("rows").size(), rows.size());
  EXPECT_EQ(drawn.objects("rows").at(5).number("step_ms"), rows[5].step_ms.median);
  EXPECT_FALSE(drawn.objects("rows").at(5).has("settings")) << "the same text in each";
  const std::vector<Document> views = drawn.objects("views");
  ASSERT_EQ(views.size(), 4u);
  for (const Document& view : views) {
    EXPECT_EQ(view.integer("ranks"), 4);
    EXPECT_NE(view.text("workload"), "burst");
  }
}

TEST(SweepReport, ShowsTheRowsOfItsSettingsAlone) {
  std::vector<EpRow> rows = sweep({2});
  rows[0].settings = rows[1].settings = "other";
  rows[0].step_ms.median = 987.6;
  const std::string html = page_of(rows, "settings");
  EXPECT_FALSE(contains(html, "987.6"));
  EXPECT_TRUE(contains(html, "<td>2 points of other settings"));
}

TEST(SweepReport, SaysWhereItWasMeasured) {
  const std::string html = page_of(sweep({1, 2}), "settings");
  for (const char* part :
       {"a model", "a CPU, 2 processors", "1 a rank on 1 rank; 1 a rank on 2 ranks", "an MPI", "a BLAS",
        "a version, commit a commit", "2026-01-02T03:04:05Z to 2026-01-02T03:04:05Z"})
    EXPECT_TRUE(contains(html, part)) << part;
}

}  // namespace
}  // namespace moeloom
