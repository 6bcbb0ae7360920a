#include "moeloom/train/schedule.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Schedule, WarmsUpFallsAlongHalfACosineAndStaysAtTheFloor) {
  const Schedule usual{.peak = 2.0, .warmup_steps = 4, .total_steps = 12, .final_fraction = 0.1};
  const Schedule no_warmup{.peak = 1.0, .warmup_steps = 0, .total_steps = 2, .final_fraction = 0.0};
  const Schedule only_warmup{.peak = 1.0, .warmup_steps = 3, .total_steps = 3, .final_fraction = 0.5};
  const Schedule cut_short{.peak = 1.0, .warmup_steps = 10, .total_steps = 4, .final_fraction = 0.5};
  const Schedule flat{.peak = 3.0, .warmup_steps = 0, .total_steps = 9, .final_fraction = 1.0};
  const double eighth_turn = std::sqrt(0.5);  // cos(pi / 4)
  struct Case {
    const char* name;
    Schedule schedule;
    Index step;
    double expected;
  };
  const Case cases[] = {
      {"the first step moves already", usual, 0, 0.5},
      {"the second step of warm-up", usual, 1, 1.0},
      {"the last step of warm-up has the peak", usual, 3, 2.0},
      {"the cosine starts at the peak", usual, 4, 2.0},
      {"a quarter of the way down", usual, 6, 2 * (0.1 + 0.9 * 0.5 * (1 + eighth_turn))},
      {"half-way down", usual, 8, 2 * (0.1 + 0.9 * 0.5)},
      {"three quarters of the way down", usual, 10, 2 * (0.1 + 0.9 * 0.5 * (1 - eighth_turn))},
      {"at the end", usual, 12, 0.2},
      {"beyond the end", usual, 1000, 0.2},
      {"no warm-up starts at the peak", no_warmup, 0, 1.0},
      {"no warm-up, half-way", no_warmup, 1, 0.5},
      {"a floor of nothing", no_warmup, 2, 0.0},
      {"nothing but warm-up reaches the peak", only_warmup, 2, 1.0},
      {"after nothing but warm-up comes the floor", only_warmup, 4, 0.5},
      {"a run that ends in warm-up", cut_short, 3, 0.4},
      {"a constant rate", flat, 5, 3.0},
  };
  for (const Case& c : cases) EXPECT_NEAR(c.schedule.at(c.step), c.expected, 1e-14) << c.name;
}

TEST(Schedule, RisesThenNeverRisesAgain) {
  const Schedule schedule{.peak = 1e-3, .warmup_steps = 20, .total_steps = 300, .final_fraction = 0.1};
  for (Index step = 1; step < 20; ++step) EXPECT_GT(schedule.at(step), schedule.at(step - 1)) << step;
  for (Index step = 21; step < 310; ++step) EXPECT_LE(schedule.at(step), schedule.at(step - 1)) << step;
}

TEST(Schedule, ThePeakThatNobodySaidFallsAsOneByTheWidth) {
  const std::pair<Index, double> cases[] = {{1, 1e-3},       {64, 1e-3},        {256, 1e-3},
                                            {512, 5e-4},     {768, 1e-3 / 3},   {1024, 2.5e-4},
                                            {2048, 1.25e-4}, {16384, 1e-3 / 64}};
  for (const auto& [hidden_size, peak] : cases)
    EXPECT_DOUBLE_EQ(usual_peak(hidden_size), peak) << hidden_size;
  EXPECT_EQ(usual_peak(256), 1e-3) << "to the last bit, as a run that says it";
}

TEST(Schedule, WarmUpIsATenthAndOfAPeakThatNobodySaidTenStepsAtLeast) {
  struct Case {
    Index total, usual, careful;
  };
  const Case cases[] = {{1, 0, 10},    {5, 0, 10},    {50, 5, 10},      {100, 10, 10},   {109, 10, 10},
                        {300, 30, 30}, {500, 50, 50}, {1000, 100, 100}, {5000, 100, 100}};
  for (const auto& [total, usual, careful] : cases) {
    EXPECT_EQ(usual_warmup(total), usual) << total;
    EXPECT_EQ(careful_warmup(total), careful) << total;
  }
  const Schedule five{.peak = 1, .warmup_steps = careful_warmup(5), .total_steps = 5, .final_fraction = 0.1};
  EXPECT_EQ(five.at(4), 0.5) << "five steps end half-way up";
}

}  // namespace
}  // namespace moeloom
