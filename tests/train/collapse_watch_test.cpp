#include "train/collapse_watch.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using RowCounts = std::vector<Index>;

constexpr CollapseRule kRule{.steps = 5};

/// 8 experts, 2 a token, 400 tokens: 100 rows each at balance, 400 at most; hot above 250, sound to 175.
RowCounts rows_with_hot(Index expert, Index rows) {
  RowCounts all(8, (800 - rows) / 7);
  all[at(expert)] = rows + (800 - rows) % 7;
  return all;
}

RowCounts rows_with_dead(Index count) {
  RowCounts all(8, 800 / (8 - count));
  std::fill_n(all.begin(), count, Index{0});
  return all;
}

/// A watch with its clock.
class Watched {
 public:
  explicit Watched(const std::vector<Index>& top_k = {2, 2, 2}) : watch(top_k, kRule) {}

  std::vector<CollapseEvent> step(const std::vector<RowCounts>& rows) { return watch.step(next_++, rows); }
  /// All that is told in `count` steps that are alike.
  std::vector<CollapseEvent> steps(Index count, const std::vector<RowCounts>& rows) {
    std::vector<CollapseEvent> told;
    for (Index i = 0; i < count; ++i)
      for (const CollapseEvent& event : step(rows)) told.push_back(event);
    return told;
  }

  CollapseWatch watch;

 private:
  Index next_ = 0;
};

TEST(CollapseWatch, TellsOnceThatItBeginsAndOnceThatItEnds) {
  Watched run;
  EXPECT_TRUE(run.steps(4, {{}, rows_with_hot(3, 300)}).empty());
  const auto begun = run.steps(100, {{}, rows_with_hot(3, 300)});
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_TRUE(begun[0].begins);
  EXPECT_EQ(begun[0].step, 4) << "the fifth step in a row";
  EXPECT_EQ(begun[0].layer, 1);
  EXPECT_EQ(begun[0].expert, 3);
  EXPECT_EQ(begun[0].sign, CollapseSign::kHotExpert);
  EXPECT_DOUBLE_EQ(begun[0].share_of_tokens, 303 / 400.0);
  EXPECT_EQ(begun[0].dead_experts, 0);
  EXPECT_TRUE(run.steps(4, {{}, rows_with_hot(3, 170)}).empty());
  const auto ended = run.steps(100, {{}, rows_with_hot(3, 170)});
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_FALSE(ended[0].begins);
  EXPECT_EQ(ended[0].step, 4 + 100 + 4);
  EXPECT_EQ(ended[0].layer, 1);
  EXPECT_EQ(ended[0].expert, 3);
  EXPECT_EQ(ended[0].since, 4);
  const auto again = run.steps(5, {{}, rows_with_hot(0, 300)});
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].expert, 0);
}

TEST(CollapseWatch, WhatLiesBetweenTheBoundsNeitherBeginsNorEnds) {
  Watched run;
  EXPECT_TRUE(run.steps(50, {rows_with_hot(1, 240)}).empty());
  EXPECT_EQ(run.steps(5, {rows_with_hot(1, 300)}).size(), 1u);
  EXPECT_TRUE(run.steps(50, {rows_with_hot(1, 240)}).empty()) << "no second warning, and no end";
}

TEST(CollapseWatch, AnInterruptionStartsTheCountAnew) {
  Watched run;
  for (Index i = 0; i < 10; ++i) {
    EXPECT_TRUE(run.steps(4, {rows_with_hot(2, 300)}).empty());
    EXPECT_TRUE(run.steps(1, {rows_with_hot(2, 200)}).empty());
  }
  EXPECT_EQ(run.steps(5, {rows_with_hot(2, 300)}).size(), 1u);
  for (Index i = 0; i < 10; ++i) {
    EXPECT_TRUE(run.steps(4, {rows_with_hot(2, 160)}).empty());
    EXPECT_TRUE(run.steps(1, {rows_with_hot(2, 200)}).empty());
  }
}

TEST(CollapseWatch, BurstsOnExpertsInTurnAreNoCollapse) {
  Watched run;
  for (Index i = 0; i < 40; ++i) EXPECT_TRUE(run.step({rows_with_hot(i % 8, 400)}).empty());
}

TEST(CollapseWatch, OfSeveralHotExpertsTheFullestThatStayedIsNamed) {
  Watched run;
  RowCounts two = {0, 380, 10, 0, 390, 10, 10, 0};  // K = 2: nearly every token chooses 1 and 4
  run.steps(4, {two});
  two = {390, 5, 5, 0, 380, 10, 10, 0};  // the fullest is new
  const auto begun = run.steps(1, {two});
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].expert, 4);
}

TEST(CollapseWatch, AQuarterOfTheExpertsWithoutARowIsACollapse) {
  Watched run;
  EXPECT_TRUE(run.steps(50, {rows_with_dead(1)}).empty()) << "one of eight";
  const auto begun = run.steps(50, {rows_with_dead(2)});
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].sign, CollapseSign::kDeadExperts);
  EXPECT_EQ(begun[0].step, 54) << "expert 1 is dead for five steps";
  EXPECT_EQ(begun[0].expert, 0);
  EXPECT_EQ(begun[0].dead_experts, 2);
  EXPECT_EQ(begun[0].share_of_tokens, 0);
  EXPECT_TRUE(run.steps(50, {rows_with_dead(1)}).empty()) << "one of eight is not under one of eight";
  const auto ended = run.steps(50, {rows_with_dead(0)});
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_FALSE(ended[0].begins);
  EXPECT_EQ(ended[0].dead_experts, 0);
}

TEST(CollapseWatch, StepsWithFewerRowsThanExpertsTellNothingOfDeadOnes) {
  Watched run;
  const RowCounts one_token = {1, 1, 0, 0, 0, 0, 0, 0};
  EXPECT_TRUE(run.steps(4, {one_token}).empty());
  Watched second;
  second.steps(4, {{4, 4, 0, 0, 0, 0, 0, 0}});
  const auto told = second.steps(1, {{4, 4, 0, 0, 0, 0, 0, 0}});
  ASSERT_EQ(told.size(), 1u) << "as many rows as experts";
  EXPECT_EQ(told[0].sign, CollapseSign::kHotExpert) << "a hot one is told first";
  Watched cold;
  const std::vector<RowCounts> few = {
      {1, 0, 0, 0, 0, 0, 0, 1}, {0, 1, 1, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 0, 1, 0, 0}};
  for (Index i = 0; i < 60; ++i) EXPECT_TRUE(cold.step({few[at(i % 3)]}).empty()) << i;
}

TEST(CollapseWatch, DenseLayersAndLayersWithoutRowsTellNothing) {
  Watched run;
  EXPECT_TRUE(run.steps(50, {}).empty());
  EXPECT_TRUE(run.steps(50, {{}, RowCounts(8, 0)}).empty());
  EXPECT_EQ(run.steps(4, {{}, rows_with_hot(0, 300)}).size(), 0u);
  EXPECT_TRUE(run.steps(3, {{}, RowCounts(8, 0)}).empty());
  EXPECT_EQ(run.steps(1, {{}, rows_with_hot(0, 300)}).size(), 1u) << "what is not known interrupts nothing";
}

TEST(CollapseWatch, WhereEveryTokenVisitsEveryExpertThereIsNoCollapse) {
  for (const Index experts : {1, 3}) {
    Watched run({experts});
    EXPECT_TRUE(run.steps(50, {RowCounts(at(experts), 100)}).empty()) << experts;
  }
}

TEST(CollapseWatch, TellsEachLayerByItself) {
  Watched run;
  const auto told = run.steps(20, {rows_with_hot(0, 300), RowCounts(8, 100), rows_with_hot(7, 400)});
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].layer, 0);
  EXPECT_EQ(told[1].layer, 2);
}

/// As HunYuan's, whose layers differ in it: 16 experts, 1000 tokens.
TEST(CollapseWatch, JudgesALayerByItsOwnNumberOfExpertsAToken) {
  const RowCounts of_top_8(16, 500);
  RowCounts of_top_2(16, 120);
  of_top_2[0] = 200;  // a fifth of the tokens
  Watched run({8, 2});
  EXPECT_TRUE(run.steps(50, {of_top_8, of_top_2}).empty());
  of_top_2.assign(16, 80);
  of_top_2[0] = 800;
  const auto begun = run.steps(50, {of_top_8, of_top_2});
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].layer, 1);
  EXPECT_DOUBLE_EQ(begun[0].share_of_tokens, 0.8);
}

TEST(CollapseWatch, AResumedRunTellsNothingTwice) {
  Watched first;
  const auto begun = first.steps(10, {rows_with_hot(0, 300), rows_with_hot(6, 300)});
  ASSERT_EQ(begun.size(), 2u);
  Watched second;
  second.watch.resume(begun);
  EXPECT_TRUE(second.steps(50, {rows_with_hot(0, 300), rows_with_hot(6, 300)}).empty());
  const auto ended = second.steps(50, {rows_with_hot(0, 300), RowCounts(8, 100)});
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].layer, 1);
  EXPECT_EQ(ended[0].expert, 6);
  EXPECT_EQ(ended[0].since, 4);
  Watched third;
  third.watch.resume({begun[0], begun[1], ended[0]});
  const auto again = third.steps(50, {rows_with_hot(0, 300), rows_with_hot(6, 300)});
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].layer, 1);
}

TEST(CollapseWatch, BoundsLieBetweenBalanceAndOneExpertForAll) {
  EXPECT_DOUBLE_EQ(share_of_tokens(0, 2, 8), 0.25);
  EXPECT_DOUBLE_EQ(share_of_tokens(0.5, 2, 8), 0.625);
  EXPECT_DOUBLE_EQ(share_of_tokens(1, 8, 128), 1);
  EXPECT_DOUBLE_EQ(share_of_tokens(0.5, 10, 512), 0.5 + 10 / 1024.0);
}

}  // namespace
}  // namespace moeloom
