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

TEST(SweepReport, IsWholeForAnySweep) {
  for (const auto& rows : {std::vector<EpRow>(), sweep({1}), sweep({4}), sweep({1, 2, 4}),
                           sweep({2}, {kWorkloads.begin(), kWorkloads.end()})}) {
    const std::string html = sweep_page(rows, "settings");
    EXPECT_TRUE(html.starts_with("<!doctype html>") && html.ends_with("</html>\n"));
    for (const std::string element :
         {"svg", "section", "div", "p", "table", "title", "span", "main", "td", "th", "tr"})
      EXPECT_EQ(count_of(html, "</" + element + ">"),
                count_of(html, "<" + element + ">") + count_of(html, "<" + element + " "))
          << element << " with " << rows.size() << " rows";
    for (const char* wrong : {"nan", "inf\"", "NaN", "http", "<script", "<link", "url(", "src="})
      EXPECT_FALSE(contains(html, wrong)) << wrong;
  }
}

TEST(SweepReport, NamesWhatWasSkippedAndComparesTheRest) {
  std::vector<EpRow> rows = sweep({2});
  const std::string whole = sweep_page(rows, "settings");
  EpRow refused = row_of({.ranks = 2, .ep = 2}, rows.front());
  refused.step_ms = {};
  refused.skipped = "2 < 3 nodes";
  rows.push_back(refused);
  const std::string html = sweep_page(rows, "settings");
  EXPECT_EQ(count_of(html, "<td>" + html_escaped(refused.point) + "</td><td>2 &lt; 3 nodes</td>"), 1u);
  EXPECT_LT(whole.size(), html.size());
  const std::size_t answers = html.find("All points");
  EXPECT_EQ(html.substr(0, answers), whole.substr(0, answers)) << "no answer is drawn from it";
  EXPECT_TRUE(contains(sweep_page({refused}, "settings"), "2 &lt; 3 nodes"));
}

TEST(SweepReport, HoldsEveryNumberOfEveryRow) {
  const std::vector<EpRow> rows = sweep({1, 2, 4});
  const std::string html = sweep_page(rows, "settings");
  EXPECT_EQ(count_of(html, "<td>" + rows.front().mode + "</td>"), 2u * 3 * (1 + 2 + 3)) << "a line a row";
  for (const EpRow& row : rows) {
    const std::string cells =
        "<td>" + std::to_string(row.dp) + " x " + std::to_string(row.ep) + "</td><td>" + row.gmm +
        (row.gmm_applied ? ": grouped" : ": loop") + "</td><td>auto: alltoall</td><td>fp32</td><td>" +
        readable(static_cast<double>(row.tokens), 7) + "</td><td>" + readable(row.step_ms.median, 4) +
        "</td><td>" + readable(row.step_ms.p10, 4) + " to " + readable(row.step_ms.p90, 4) + "</td><td>" +
        readable(row.tokens_per_s, 4) + "</td><td>" + readable_bytes(static_cast<double>(row.memory_bytes)) +
        "</td><td>" + readable_bytes(static_cast<double>(row.message_bytes)) + "</td><td>" +
        readable_bytes(static_cast<double>(row.row_bytes)) +
        "</td><td>1.37</td><td>1.19</td><td>0.213</td><td>0.087</td><td>1.23e-06</td><td>5e-05</td><td>9</"
        "td>";
    EXPECT_TRUE(contains(html, cells)) << cells;
  }
}

TEST(SweepReport, AnswersFromTheLargestWorldForEachModeAndScaling) {
  const std::vector<EpRow> rows = sweep({1, 2, 4});
  const std::string html = sweep_page(rows, "settings");
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

TEST(SweepReport, DrawsWhatIsAskedForOfEachModeAndScaling) {
  const std::string html = sweep_page(sweep({1, 2, 4}, {Workload::kBalanced, Workload::kBurst}), "settings");
  for (const char* title :
       {"<h2>Tokens per second: ", "<h2>Time: ", "<h2>Time by phase: ", "<h2>Memory of a rank: ",
        "<h2>Bytes of a step: ", "<h2>Imbalance: ", "<h2>More ranks: "})
    EXPECT_EQ(count_of(html, title), 4u) << title;
  EXPECT_EQ(count_of(html, "<h2>Routings: "), 2u) << "a training step has its router's alone";
  EXPECT_EQ(count_of(html, "<td>burst</td>"), 2u * 3 + 2u * 3 * (1 + 2 + 3)) << "by ep, and in all points";
  EXPECT_EQ(count_of(sweep_page(sweep({4}), "settings"), "<h2>More ranks: "), 0u);
}

TEST(SweepReport, ShowsTheRowsOfItsSettingsAlone) {
  std::vector<EpRow> rows = sweep({2});
  rows[0].settings = rows[1].settings = "other";
  rows[0].step_ms.median = 987.6;
  const std::string html = sweep_page(rows, "settings");
  EXPECT_FALSE(contains(html, "987.6"));
  EXPECT_TRUE(contains(html, "<td>2 points of other settings"));
}

TEST(SweepReport, SaysWhereItWasMeasured) {
  const std::string html = sweep_page(sweep({1, 2}), "settings");
  for (const char* part :
       {"a model", "a CPU, 2 processors", "1 a rank on 1 rank; 1 a rank on 2 ranks", "an MPI", "a BLAS",
        "a version, commit a commit", "2026-01-02T03:04:05Z to 2026-01-02T03:04:05Z"})
    EXPECT_TRUE(contains(html, part)) << part;
}

}  // namespace
}  // namespace moeloom
