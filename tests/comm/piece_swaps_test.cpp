// What swaps of pieces have alone. That they bring what MPI's collectives bring: communicator_test.
#include "piece_swaps.hpp"

#include <array>
#include <chrono>
#include <numeric>
#include <thread>

#include "support/folded_floats.hpp"
#include "support/late_rank.hpp"
#include "support/sanitized.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::byte byte_of(Index from, Index to, Index i) {
  return static_cast<std::byte>((from * 31 + to * 7 + i % 251) % 256);
}

std::vector<std::byte> message(Index from, Index to, Index bytes) {
  std::vector<std::byte> all(at(bytes));
  for (Index i = 0; i < bytes; ++i) all[at(i)] = byte_of(from, to, i);
  return all;
}

/// Lengths around those of a piece and of what may be under way, and nothing; another in each direction.
Index length(Index from, Index to, Index round) {
  constexpr std::array<Index, 7> lengths = {0, 1, 61'440, 61'441, 900'000, 7, 2'000'003};
  return lengths[at((from * 3 + to + round) % std::ssize(lengths))];
}

TEST(PieceSwaps, BringEachRankWhatIsMeantForItAndRoundsDoNotMix) {
  const Communicator world = Communicator::world();
  for (Index round = 0; round < 7; ++round) {
    std::vector<std::vector<std::byte>> sent, received;
    PieceSwaps swaps(world);
    for (Index rank = 0; rank < world.size(); ++rank) {
      sent.push_back(message(world.rank(), rank, length(world.rank(), rank, round)));
      received.emplace_back(at(length(rank, world.rank(), round)));
    }
    for (Index rank = 0; rank < world.size(); ++rank)
      if (rank != world.rank()) swaps.add(rank, sent[at(rank)], received[at(rank)]);
    if (world.rank() == round % world.size()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    swaps.finish();
    for (Index rank = 0; rank < world.size(); ++rank) {
      if (rank == world.rank()) continue;
      EXPECT_EQ(received[at(rank)], message(rank, world.rank(), length(rank, world.rank(), round)))
          << "round " << round << ", from rank " << rank;
    }
  }
}

TEST(PieceSwaps, MayLeaveOutPairs) {
  const Communicator world = Communicator::world();
  const Index partner = world.rank() ^ 1;  // of an odd number of ranks, the last has none
  PieceSwaps swaps(world);
  const std::vector<std::byte> sent = message(world.rank(), partner, 300'000);
  std::vector<std::byte> received(sent.size());
  if (partner < world.size()) swaps.add(partner, sent, received);
  swaps.finish();
  if (partner < world.size()) {
    EXPECT_EQ(received, message(partner, world.rank(), 300'000));
  }
}

TEST(PieceSwaps, RefuseThisRankAndStrangers) {
  const Communicator world = Communicator::world();
  PieceSwaps swaps(world);
  EXPECT_THROW(swaps.add(world.rank(), {}, {}), ShapeError);
  EXPECT_THROW(swaps.add(world.size(), {}, {}), ShapeError);
}

TEST(PieceSwaps, OneMessageMayBeLongerThanAnIntCounts) {
  if (testing::kSanitized) GTEST_SKIP() << "gigabytes, checked byte by byte, take minutes";
  const Communicator world = Communicator::world();
  if (world.size() != 2) GTEST_SKIP() << "seconds for one message; others would only watch it";
  constexpr Index kFloats = (Index{1} << 29) + 3;
  const testing::FoldedFloats folded(kFloats);
  const std::span<float> values = folded.values();
  std::ranges::fill(values.last(3), world.rank() == 0 ? 7.0f : 0.0f);
  PieceSwaps swaps(world);
  if (world.rank() == 0) swaps.add(1, std::as_bytes(values), {});
  if (world.rank() == 1) swaps.add(0, {}, std::as_writable_bytes(values));
  swaps.finish();
  EXPECT_EQ(values.back(), 7);
}

/// Rank 0 begins once a thread of each other rank has read from its board that it waits for rank 0.
TEST(PieceSwaps, ShowOnTheBoardWhomTheyWaitFor) {
  Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "nobody to wait for";
  std::vector<int> others;
  for (int rank = 1; rank < world.size(); ++rank) others.push_back(rank);
  testing::LateRank late(world);
  late.hold(world, 0, others, "MPI_Waitsome");
  PieceSwaps swaps(world);
  const std::vector<std::byte> sent(100'000);
  std::vector<std::vector<std::byte>> received(at(world.size()), std::vector<std::byte>(sent.size()));
  for (Index rank = 0; rank < world.size(); ++rank)
    if (rank != world.rank()) swaps.add(rank, sent, received[at(rank)]);
  swaps.finish();
  EXPECT_EQ(late.board().read().call, "");
}

}  // namespace
}  // namespace moeloom
