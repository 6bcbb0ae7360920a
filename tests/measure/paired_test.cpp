#include "moeloom/measure/paired.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Paired, AllTakeTheirTurnInEveryRound) {
  std::vector<std::size_t> turns;
  const std::vector<Samples> samples = take_turns(2, 3, [&](std::size_t i) {
    turns.push_back(i);
    return static_cast<double>(turns.size());
  });
  EXPECT_EQ(turns, (std::vector<std::size_t>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(samples, (std::vector<Samples>{{1, 3, 5}, {2, 4, 6}}));
  EXPECT_EQ(ratios(samples[1], samples[0]), (Samples{2, 4.0 / 3, 6.0 / 5}));
}

TEST(Paired, AContestIsOfRatiosWithinRounds) {
  int peaks = 0;
  const auto nothing = [] {};
  const Contest contest = compete(
      {{"one", nothing}, {"other", nothing}}, 1e3, [&](double) { return static_cast<double>(++peaks > 0); },
      3);
  EXPECT_EQ(contest.peak_gflops, 1);
  ASSERT_EQ(contest.standings.size(), 2u);
  EXPECT_EQ(contest.standings[0].lead.median, 1);
  EXPECT_EQ(peaks, 2 * 2 * 3) << "before and after each turn";
}

TEST(Paired, ThePeakIsTheMeanOfBeforeAndAfter) {
  double next = 10;
  std::vector<double> lengths;
  const BesidePeak sample = beside_peak(
      [&](double seconds) {
        lengths.push_back(seconds);
        return next += 10;
      },
      0.4, [] { return 0.5; });
  EXPECT_EQ(sample.seconds, 0.5);
  EXPECT_EQ(sample.gflops, 25);
  EXPECT_EQ(lengths, (std::vector<double>{0.2, 0.2}));
}

}  // namespace
}  // namespace moeloom
