#include "watch/stall_watch.hpp"

#include <algorithm>
#include <unistd.h>

#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// The watcher of rank 1 of 2 in a process that the test plays.
class WatchOfRank1 : public ::testing::Test {
 protected:
  WatchOfRank1() {
    order_.rank = 1;
    order_.world = 2;
    std::ranges::copy(folder_.path().string(), order_.folder.begin());
    order_.step_seconds = order_.file_seconds = order_.start_seconds = 100;
    board_.enter_step(7, 0);
  }
  bool has_answered() const { return std::filesystem::exists(folder_.path() / "stall" / "rank-1.json"); }

  testing::TemporaryFolder folder_;
  PositionBoard board_;
  WatchOrder order_;
};

TEST_F(WatchOfRank1, AnswersAlsoWhileItsRankMovesAllTheTime) {
  StallWatch watch(board_, order_, getppid(), [] {});
  std::filesystem::create_directory(folder_.path() / "stall");
  for (int looks = 0; looks < 16; ++looks) {
    board_.enter(Phase::kExperts);
    EXPECT_FALSE(watch.look());
  }
  ASSERT_TRUE(has_answered());
  const RankPosition answer = RankPosition::from(Document::read(folder_.path() / "stall" / "rank-1.json"));
  EXPECT_TRUE(answer.moves);
  EXPECT_EQ(answer.position.step, 7);
}

TEST_F(WatchOfRank1, SaysNothingUnasked) {
  StallWatch watch(board_, order_, getppid(), [] {});
  for (int looks = 0; looks < 16; ++looks) EXPECT_FALSE(watch.look());
  EXPECT_FALSE(has_answered());
}

}  // namespace
}  // namespace moeloom
