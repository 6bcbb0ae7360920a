#include "run/gmm_watch.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr GmmPrediction kPredicted{.loop_seconds = 6e-3, .gmm_seconds = 4e-3};

/// What a run with these step times hears, and at which step; a path's times follow the one that is used.
struct History {
  bool grouped;
  double loop_seconds, gmm_seconds;
  std::vector<GmmNews> news;

  GmmWatch play(Index first, Index steps) {
    GmmWatch watch(grouped, kPredicted);
    for (Index step = first; step < first + steps; ++step) {
      const GmmNews heard = watch.after_step(step + 1, grouped ? gmm_seconds : loop_seconds);
      if (heard.use_grouped) grouped = *heard.use_grouped;
      if (!events_of(heard).empty()) news.push_back(heard);
    }
    return watch;
  }
};

TEST(GmmWatch, APredictionThatHoldsIsReportedOnce) {
  for (const double error : {-0.25, -0.1, 0.0, 0.2499}) {
    History run{true, 99, 4e-3 * (1 + error), {}};
    EXPECT_TRUE(run.play(0, 30).done());
    ASSERT_EQ(run.news.size(), 1u) << error;
    EXPECT_EQ(run.news[0].step, 5);
    EXPECT_NEAR(run.news[0].check.value().error(), error, 1e-12);
    EXPECT_FALSE(run.news[0].use_grouped || run.news[0].decision);
    EXPECT_TRUE(run.grouped);
  }
}

TEST(GmmWatch, SaysNothingBeforeFiveSteps) {
  History run{true, 1, 1, {}};
  EXPECT_FALSE(run.play(0, 4).done());
  EXPECT_TRUE(run.news.empty());
}

TEST(GmmWatch, AnErrorAtBothChecksTriesTheOtherPathAndTakesTheFaster) {
  for (const bool grouped : {true, false})
    for (const bool other_is_faster : {true, false}) {
      const double chosen = 40e-3, other = other_is_faster ? 30e-3 : 50e-3;
      History run{grouped, grouped ? other : chosen, grouped ? chosen : other, {}};
      EXPECT_TRUE(run.play(100, 40).done());
      ASSERT_EQ(run.news.size(), 3u);
      EXPECT_EQ(run.news[0].step, 105);
      EXPECT_FALSE(run.news[0].use_grouped);
      EXPECT_EQ(run.news[1].step, 110);
      EXPECT_EQ(run.news[1].use_grouped, !grouped);
      EXPECT_FALSE(run.news[1].decision) << "a trial decides nothing";
      EXPECT_EQ(run.news[2].step, 115);
      EXPECT_EQ(run.news[2].decision.value().apply, other_is_faster ? !grouped : grouped);
      EXPECT_EQ(run.news[2].use_grouped, run.news[2].decision->apply);
      EXPECT_EQ(run.grouped, run.news[2].decision->apply);
    }
}

TEST(GmmWatch, AnErrorThatLeavesThePathTheFasterOneIsNoReasonForATrial) {
  for (const double measured : {1e-3, 5.5e-3}) {  // grouped was predicted to take 4 ms, the loop 6 ms
    History run{true, 99, measured, {}};
    EXPECT_TRUE(run.play(0, 30).done());
    ASSERT_EQ(run.news.size(), 2u);
    EXPECT_FALSE(run.news[1].use_grouped);
    EXPECT_TRUE(run.news[1].decision.value().apply);
    EXPECT_NE(run.news[1].decision->reason.find("where 6 ms were predicted for the loop path"),
              std::string::npos)
        << run.news[1].decision->reason;
  }
}

TEST(GmmWatch, OneSlowStretchChangesNothing) {
  GmmWatch watch(true, kPredicted);
  for (Index step = 1; step <= 5; ++step) watch.after_step(step, 40e-3);
  EXPECT_FALSE(watch.done());
  for (Index step = 6; step <= 9; ++step) EXPECT_FALSE(watch.after_step(step, 4e-3).check);
  const GmmNews news = watch.after_step(10, 4e-3);
  EXPECT_TRUE(news.check && !news.use_grouped && !news.decision);
  EXPECT_TRUE(watch.done());
}

TEST(GmmWatch, GoesByMediansSoAFirstStepWithNewMemoryDoesNotCount) {
  GmmWatch watch(false, kPredicted);
  GmmNews news;
  for (const double seconds : {60e-3, 6e-3, 90e-3, 6e-3, 6e-3}) news = watch.after_step(0, seconds);
  EXPECT_EQ(news.check.value().measured_seconds, 6e-3);
}

TEST(GmmWatch, LinesNameTheStepBothTimesAndTheReason) {
  History run{true, 2e-3, 40e-3, {}};
  run.play(0, 15);
  ASSERT_EQ(run.news.size(), 3u);
  EXPECT_EQ(events_of(run.news[0]).at(0).text(),
            "gmm_check step=5 predicted_ms=4 measured_ms=40 error=+900%");
  ASSERT_EQ(events_of(run.news[1]).size(), 2u);
  EXPECT_TRUE(events_of(run.news[1])[1].text().starts_with("gmm_switch step=10 to=loop reason="));
  EXPECT_EQ(
      events_of(run.news[2]).at(0).text(),
      "gmm_switch step=15 to=loop gmm=no reason=\"changed at step 15: measured 40 ms grouped against 2 ms "
      "for the loop, where 4 ms and 6 ms were predicted\"");
}

}  // namespace
}  // namespace moeloom
