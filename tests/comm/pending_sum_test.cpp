#include "comm/pending_sum.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(PendingSum, AddsUpOverRanksWhileOtherCollectivesRun) {
  const Communicator world = Communicator::world();
  const std::int64_t rank = world.rank(), ranks = world.size();
  PendingSum sum(world, {rank, 1, (std::int64_t{1} << 60) / ranks});
  std::vector<std::int64_t> other = {1};
  world.all_sum(other);
  EXPECT_EQ(other.front(), ranks);
  EXPECT_EQ(sum.finish(), (std::vector<std::int64_t>{ranks * (ranks - 1) / 2, ranks,
                                                     (std::int64_t{1} << 60) / ranks * ranks}));
}

TEST(PendingSum, NeedNotBeAskedFor) {
  const Communicator world = Communicator::world();
  { const PendingSum forgotten(world, {1, 2, 3}); }
  EXPECT_EQ(PendingSum(world, {}).finish(), std::vector<std::int64_t>());
}

TEST(PendingSum, OfARankAloneIsItsOwn) {
  EXPECT_EQ(PendingSum(Communicator::self(), {7}).finish(), std::vector<std::int64_t>{7});
}

}  // namespace
}  // namespace moeloom
