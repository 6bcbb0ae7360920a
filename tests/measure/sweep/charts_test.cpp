#include "sweep/charts.hpp"

#include "report/html.hpp"

#include "support/count_of.hpp"
#include "sweep/rows_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::count_of;
using testing::layer_alone;
using testing::rows_of_world;

double charted_ms(const EpPoint& point) {
  return 40.0 / static_cast<double>(point.ep) + 7.1 * static_cast<double>(point.gmm) +
         3.3 * static_cast<double>(point.ranks) + 1.9 * static_cast<double>(point.workload.made_up());
}

std::vector<EpView> views(const SweepSettings& options, std::vector<Index> worlds) {
  std::vector<EpRow> rows;
  for (const Index ranks : worlds)
    for (EpRow& row : rows_of_world(options, ranks, charted_ms)) rows.push_back(std::move(row));
  return views_of(rows);
}

TEST(SweepCharts, LabelsSayWhatTellsRowsApart) {
  SweepSettings options = layer_alone();
  const EpView plain = views(options, {2}).front();
  EXPECT_EQ(label_of(plain.rows.front(), plain), "ep 1, gmm 0");
  EXPECT_EQ(label_of(plain.rows[4], plain), "ep 2, gmm auto (grouped)");
  EXPECT_EQ(label_of(plain.rows.back(), plain), "ep 2, gmm force");
  options.dispatchers = {DispatcherKind::kAlltoall, DispatcherKind::kShared};
  options.dtypes = {DType::kF32, DType::kBF16};
  const EpView full = views(options, {2}).front();
  EXPECT_EQ(label_of(full.rows.back(), full), "ep 2, gmm force, shared, bf16");
}

TEST(SweepCharts, LinesByEpHaveAPointARow) {
  const EpView view = views(layer_alone(), {4}).front();
  for (const std::string& svg : {tokens_chart(view), time_chart(view)}) {
    EXPECT_EQ(count_of(svg, "<path "), 3u) << "0, auto, force";
    EXPECT_EQ(count_of(svg, "<circle "), view.rows.size());
  }
  EXPECT_EQ(count_of(time_chart(view), "gmm 0 " + readable(view.rows.front().step_ms.median, 4)), 1u);
}

TEST(SweepCharts, EveryPhaseOfAStepIsInItsBar) {
  EpView view = views(layer_alone(), {1}).front();
  view.rows.resize(1);
  for (std::size_t i = 0; i < kPhases; ++i) {
    EpRow& row = view.rows.front();
    row.phase_ms = {};
    row.phase_ms[i] = 12.5;
    const std::string svg = phase_chart(view);
    EXPECT_EQ(count_of(svg, ">12.5 ms</text>"), 1u) << name_of(static_cast<Phase>(i));
    EXPECT_EQ(count_of(svg, "<rect "), 1u) << name_of(static_cast<Phase>(i));
  }
}

TEST(SweepCharts, MemoryAndBytesStandBesideTheirBars) {
  const EpView view = views(layer_alone(), {2}).front();
  for (const EpRow& row : view.rows) {
    const auto shown = [](const std::string& svg, Index bytes) {
      return count_of(svg, ">" + readable_bytes(static_cast<double>(bytes)) + "</text>") > 0;
    };
    EXPECT_TRUE(shown(memory_chart(view), row.memory_bytes)) << row.point;
    EXPECT_TRUE(shown(bytes_chart(view), row.message_bytes)) << row.point;
    EXPECT_TRUE(shown(bytes_chart(view), row.row_bytes)) << row.point;
  }
}

TEST(SweepCharts, WhatWasMeasuredAloneIsMarkedBelowALine) {
  const EpView view = views(layer_alone(), {4}).front();
  const std::string svg = tokens_chart(view);
  const auto marked = [&](const std::string& ep) {
    return count_of(svg, "text-anchor=\"middle\">" + ep + "</text>");
  };
  EXPECT_EQ(marked("1") + marked("2") + marked("4"), 3u);
  EXPECT_EQ(marked("3") + marked("0"), 0u);
  EXPECT_EQ(count_of(svg, "<title>ep 4\n"), 1u);
}

TEST(SweepCharts, ImbalanceIsOfExpertsAndRanks) {
  const EpView view = views(layer_alone(), {2}).front();
  const std::string svg = load_chart(view);
  EXPECT_EQ(count_of(svg, ">1.37x</text>"), view.rows.size());
  EXPECT_EQ(count_of(svg, ">1.19x</text>"), view.rows.size());
}

TEST(SweepCharts, ScalingNeedsSeveralWorldsAndShowsEachEpsFastestRow) {
  EXPECT_EQ(scaling_chart(views(layer_alone(), {4})), "");
  const std::string svg = scaling_chart(views(layer_alone(), {4, 1, 2}));
  EXPECT_EQ(count_of(svg, "<path "), 3u) << "ep 1, 2, 4";
  EXPECT_EQ(count_of(svg, "<circle "), 1u + 2 + 3);
  const std::vector<EpView> largest = views(layer_alone(), {4});
  EXPECT_EQ(count_of(svg, "ep 4 " + readable(fastest_row(largest.front()).tokens_per_s, 4)), 1u);
}

TEST(SweepCharts, RoutingsAreATableOfEachEpsFastestRow) {
  SweepSettings options = layer_alone();
  EXPECT_EQ(workload_table(views(options, {2})), "");
  options.workloads = {Workload::kBalanced, Workload::kBurst};
  const std::string html = workload_table(views(options, {2}));
  EXPECT_EQ(count_of(html, "<tr><td>"), 2u * 2);
  EXPECT_EQ(count_of(html, "<td>burst</td>"), 2u);
  EXPECT_EQ(count_of(html, "<td class=\"number\">0.213</td><td class=\"number\">0.087</td></tr>"), 4u)
      << html;
  EXPECT_EQ(count_of(html, "<td class=\"number\">" +
                               readable(20 + 6.6 + 1.9 * static_cast<double>(Workload::kBurst), 4) + "</td>"),
            1u)
      << html;
}

}  // namespace
}  // namespace moeloom
