#include "comm/meeting.hpp"

#include <chrono>
#include <cstring>
#include <thread>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Ranks = std::vector<Index>;

Ranks meet(Meeting& meeting, std::int64_t told, double seconds = 0) {
  return meeting.meet(std::as_bytes(std::span(&told, 1)), seconds);
}

std::int64_t told_by(const Meeting& meeting, Index rank) {
  std::int64_t told = 0;
  std::memcpy(&told, meeting.told_by(rank).data(), sizeof(told));
  return told;
}

Communicator all_ranks() {
  return Communicator::world().split(0, Communicator::world().rank());
}

TEST(Meeting, EveryRankLearnsWhatEachTold) {
  const Communicator ranks = all_ranks();
  Meeting meeting(ranks);
  for (std::int64_t round = 0; round < 50; ++round) {
    EXPECT_EQ(meet(meeting, 100 * round + ranks.rank(), round % 2 == 0 ? 0 : 60), Ranks{});
    for (Index rank = 0; rank < ranks.size(); ++rank) ASSERT_EQ(told_by(meeting, rank), 100 * round + rank);
  }
}

TEST(Meeting, ARankAloneMeetsItself) {
  const Communicator alone = Communicator::self();
  Meeting meeting(alone);
  EXPECT_EQ(meet(meeting, 7, 0.1), Ranks{});
  EXPECT_EQ(told_by(meeting, 0), 7);
}

TEST(Meeting, WhoWaitsLearnsWhoDidNotCome) {
  const Communicator ranks = all_ranks();
  if (ranks.size() < 2) GTEST_SKIP() << "needs 2 ranks";
  const Index late = ranks.size() - 1;
  {
    Meeting meeting(ranks);
    using Seconds = std::chrono::duration<double>;
    const auto begin = std::chrono::steady_clock::now();
    if (ranks.rank() != late) {
      EXPECT_EQ(meet(meeting, ranks.rank(), 2), Ranks{late});
      const double waited = Seconds(std::chrono::steady_clock::now() - begin).count();
      EXPECT_GE(waited, 2);
      EXPECT_LT(waited, 200);
    }
    ranks.barrier();
  }
}

TEST(Meeting, WhoComesInTimeIsWaitedFor) {
  const Communicator ranks = all_ranks();
  Meeting meeting(ranks);
  if (ranks.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(meet(meeting, ranks.rank(), 30), Ranks{});
  EXPECT_EQ(told_by(meeting, ranks.size() - 1), ranks.size() - 1);
}

}  // namespace
}  // namespace moeloom
