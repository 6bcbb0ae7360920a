#include "moeloom/comm/messages.hpp"

#include <set>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// What `from` has for `to` in a round: some pairs have nothing, others more than MPI sends unasked.
std::vector<float> letter(int from, int to, int round) {
  const auto length = static_cast<std::size_t>((from + 2 * to + round) % 3 * 10'000);
  return std::vector<float>(length, static_cast<float>(100 * round + 10 * from + to));
}

TEST(Messages, EachArrivesOnceWhateverItsSizeAndRoundsDoNotMix) {
  const Communicator world = Communicator::world();
  for (int round = 0; round < 20; ++round) {
    std::vector<std::vector<float>> received, sent;
    for (int rank = 0; rank < world.size(); ++rank) {
      received.emplace_back(letter(rank, world.rank(), round).size());
      sent.push_back(letter(world.rank(), rank, round));
    }
    Messages messages(world);
    for (int rank = 0; rank < world.size(); ++rank) messages.receive(rank, received[at(rank)]);
    for (int rank = 0; rank < world.size(); ++rank) messages.send(rank, sent[at(rank)]);
    std::set<Index> told;
    while (const auto number = messages.next_arrival()) {
      EXPECT_TRUE(told.insert(*number).second);
      EXPECT_EQ(received[at(*number)], letter(static_cast<int>(*number), world.rank(), round));
    }
    messages.finish();
    std::set<Index> not_empty;
    for (int rank = 0; rank < world.size(); ++rank)
      if (!received[at(rank)].empty()) not_empty.insert(rank);
    EXPECT_EQ(told, not_empty);
  }
}

TEST(Messages, FinishWaitsForWhatNobodyAskedAfterAndCountsWhatWasSent) {
  const Communicator world = Communicator::world();
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  const std::vector<float> sent(300'000, static_cast<float>(world.rank()));
  std::vector<float> received(sent.size());
  const Traffic before = world.traffic();
  Messages messages(world);
  messages.receive(previous, received);
  messages.send(next, sent);
  messages.finish();
  EXPECT_EQ(received, std::vector<float>(sent.size(), static_cast<float>(previous)));
  EXPECT_EQ(world.traffic().bytes_sent - before.bytes_sent, world.size() == 1 ? 0 : 1'200'000);
  EXPECT_FALSE(messages.next_arrival());
}

}  // namespace
}  // namespace moeloom
