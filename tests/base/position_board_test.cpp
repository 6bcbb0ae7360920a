#include "moeloom/base/position_board.hpp"

#include "base/phase_clock.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(PositionBoard, ShowsWhatAClockEnters) {
  PositionBoard board;
  PhaseClock clock;
  clock.show_on(&board);
  clock.enter_step(7, 2);
  clock.enter_layer(3, true);
  clock.enter(Phase::kExperts);
  const Position at = board.read();
  EXPECT_EQ(at.activity, Activity::kTraining);
  EXPECT_EQ(at.step, 7);
  EXPECT_EQ(at.micro_batch, 2);
  EXPECT_EQ(at.layer, 3);
  EXPECT_TRUE(at.backward);
  EXPECT_EQ(at.phase, Phase::kExperts);
  EXPECT_TRUE(at.call.empty());
  EXPECT_EQ(at.moves, 3);
  clock.enter_step(8, 0);
  EXPECT_EQ(board.read().layer, -1);
  EXPECT_FALSE(board.read().backward);
}

TEST(PositionBoard, KeepsTheStepThatAnActivityFollows) {
  PositionBoard board;
  EXPECT_EQ(board.read().step, -1);
  board.enter_step(4, 0);
  board.place(1, true);
  board.enter(Activity::kSaving);
  const Position at = board.read();
  EXPECT_EQ(name_of(at.activity), "saving");
  EXPECT_EQ(at.step, 4);
  EXPECT_EQ(at.layer, -1);
  EXPECT_EQ(at.phase, Phase::kOther);
}

TEST(PositionBoard, ShowsACallAsLongAsItLasts) {
  PositionBoard board;
  board.enter_call("MPI_Allgather", 2);
  EXPECT_EQ(board.read().call, "MPI_Allgather");
  EXPECT_EQ(board.read().waits_for, 2);
  const auto moves = board.read().moves;
  board.enter_call(nullptr);
  EXPECT_TRUE(board.read().call.empty());
  EXPECT_EQ(board.read().waits_for, -1);
  EXPECT_GT(board.read().moves, moves);
}

}  // namespace
}  // namespace moeloom
