#include "sweep/answers.hpp"

#include <algorithm>

#include "sweep/rows_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::layer_alone;
using testing::rows_of_world;

/// A view of 4 ranks where the loop takes `loop` ms and GMM `grouped`, at ep = 1 and at the rest.
EpView view_of(double loop, double grouped, double loop_ep, double grouped_ep) {
  return views_of(rows_of_world(layer_alone(), 4,
                                [&](const EpPoint& point) {
                                  if (point.gmm == GmmRequest::kNever) return point.ep == 1 ? loop : loop_ep;
                                  return point.ep == 1 ? grouped : grouped_ep;
                                }))
      .front();
}

TEST(SweepAnswers, ViewsHoldWhatMayBeComparedByEp) {
  SweepSettings options;
  options.workloads = {Workload::kBalanced, Workload::kBurst};
  std::vector<EpRow> rows = rows_of_world(options, 2, [](const EpPoint&) { return 1.0; });
  std::swap(rows.front(), rows[5]);
  const std::vector<EpView> views = views_of(rows);
  ASSERT_EQ(views.size(), 6u);
  for (const EpView& view : views) {
    EXPECT_EQ(view.rows.size(), 6u);
    EXPECT_TRUE(std::ranges::is_sorted(view.rows, {}, &EpRow::ep));
  }
  EXPECT_EQ(views[0].title(), "MoE layer, balanced, strong scaling, 2 ranks");
  EXPECT_EQ(views[4].title(), "Training step, strong scaling, 2 ranks");
}

TEST(SweepAnswers, OtherTokensOrThreadsAreNotCompared) {
  SweepSettings more = layer_alone();
  more.tokens *= 2;
  const auto of = [](const SweepSettings& settings, double ms) {
    return rows_of_world(settings, 2, [ms](const EpPoint&) { return ms; });
  };
  std::vector<EpRow> rows = of(layer_alone(), 10);
  const std::size_t each = rows.size();
  for (EpRow& row : of(more, 16)) rows.push_back(row);
  for (EpRow& row : of(more, 9)) {
    row.threads = 2;
    rows.push_back(row);
  }
  const std::vector<EpView> views = views_of(rows);
  ASSERT_EQ(views.size(), 3u);
  for (const EpView& view : views) EXPECT_EQ(view.rows.size(), each);
  EXPECT_EQ(views[0].tokens, layer_alone().tokens);
  EXPECT_EQ(views[1].tokens, more.tokens);
  EXPECT_EQ(views[2].threads, 2);
  EXPECT_EQ(gmm_square(views[1])->loop.tokens, more.tokens);
}

TEST(SweepAnswers, GroupedMatmulIsWorthItWithoutEpWhereItIsFaster) {
  const auto square = gmm_square(view_of(30, 20, 12, 8));
  ASSERT_TRUE(square);
  EXPECT_EQ(gmm_answer(*square),
            "Yes: at ep = 1 a layer takes 20 ms grouped and 30 ms as a loop, grouped 1.5 times as fast; at "
            "ep = 4 a layer takes 8 ms grouped and 12 ms as a loop, grouped 1.5 times as fast. Upstream's "
            "rule, grouped only if ep > 1, would give up that factor of 1.5 at ep = 1.");
}

TEST(SweepAnswers, GroupedMatmulIsNotWorthItWhereTheLoopIsFaster) {
  const std::string answer = gmm_answer(*gmm_square(view_of(20, 30, 12, 8)));
  EXPECT_TRUE(
      answer.starts_with("No: at ep = 1 a layer takes 30 ms grouped and 20 ms as a loop, the loop 1.5 "
                         "times as fast; at ep = 4"))
      << answer;
  EXPECT_TRUE(answer.ends_with("is right to run the loop at ep = 1.")) << answer;
}

TEST(SweepAnswers, WhatLiesWithinTheNoiseIsSaidToDoSo) {
  const std::string answer = gmm_answer(*gmm_square(view_of(20, 20.1, 12, 8)));
  EXPECT_TRUE(
      answer.starts_with("Cannot be told: at ep = 1 a layer takes 20.1 ms grouped and 20 ms as a loop, "
                         "which is within their noise (19.9 to 20.3 ms against 19.8 to 20.2 ms)"))
      << answer;
  EXPECT_EQ(answer.find("Upstream"), std::string::npos);
}

TEST(SweepAnswers, ASquareNeedsAllOfItsFourCorners) {
  EpView view = view_of(30, 20, 12, 8);
  for (const char* gmm : {"0", "force"})
    for (const Index ep : {1, 4}) {
      EpView without = view;
      std::erase_if(without.rows, [&](const EpRow& row) { return row.gmm == gmm && row.ep == ep; });
      EXPECT_FALSE(gmm_square(without)) << gmm << ep;
    }
  std::erase_if(view.rows, [](const EpRow& row) { return row.ep > 1; });
  EXPECT_FALSE(gmm_square(view));
}

TEST(SweepAnswers, TheFastestIsComparedWithTheBestWithoutExpertParallelism) {
  const EpView view = view_of(30, 20, 12, 8);
  EXPECT_EQ(fastest_row(view).ep, 2);
  EXPECT_EQ(
      fastest_answer(view),
      "ep = 2, gmm auto, dispatcher alltoall is the fastest: 8 ms, 512,000 tokens/s, 2.5 times as fast as "
      "the best at ep = 1, gmm auto, dispatcher alltoall (20 ms).");
  EXPECT_EQ(fastest_answer(view_of(4, 5, 12, 8)),
            "ep = 1, gmm 0, dispatcher alltoall is the fastest: 4 ms, 1,024,000 tokens/s.");
}

}  // namespace
}  // namespace moeloom
