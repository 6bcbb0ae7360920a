#include "comm/messages.hpp"

#include <algorithm>
#include <array>

#include "support/folded_floats.hpp"
#include "support/late_rank.hpp"
#include "support/sanitized.hpp"
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
    for (int rank = world.size() - 1; rank >= 0; --rank) {
      messages.wait_for(rank, 1);
      EXPECT_TRUE(messages.has_arrived(rank));
      EXPECT_EQ(received[at(rank)], letter(rank, world.rank(), round));
    }
    messages.finish();
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
  EXPECT_EQ(world.traffic().message_bytes - before.message_bytes, world.size() == 1 ? 0 : 1'200'000);
  EXPECT_TRUE(messages.all_ended());
}

TEST(Messages, AReceiveIsWaitedForByItsNumberWhileOthersTravelAndNumbersBeginAgain) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "nobody to wait for";
  const bool asks = world.rank() == 0, answers = world.rank() == 1;
  Messages messages(world);
  for (int round = 0; round < 2; ++round) {
    const std::vector<float> question(70'000, static_cast<float>(round)), later(100'000, 5.0f);
    std::vector<float> first(question.size()), last(later.size());
    if (asks || answers) {
      messages.receive(1 - world.rank(), first);
      messages.receive(1 - world.rank(), last);
    }
    if (asks) messages.send(1, question);
    if (answers) messages.wait_for(0, 1);  // before it sends anything
    if (answers) messages.send(0, first);
    if (asks) messages.wait_for(0, 1);
    if (asks || answers) {
      EXPECT_EQ(first, question);
      messages.send(1 - world.rank(), later);
      messages.wait_for(1, 1);
      EXPECT_EQ(last, later);
    }
    messages.finish();
  }
}

TEST(Messages, MoveOnWhileTheirRankOnlyAsksForProgress) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "nobody to write to";
  const std::vector<float> sent(1'000'000, 3.0f);  // of several pieces
  std::vector<float> received(sent.size());
  Messages messages(world);
  if (world.rank() == 0) messages.send(1, sent);
  if (world.rank() == 1) {
    messages.receive(0, received);
    volatile float* const last = &received.back();
    while (*last == 0) messages.progress();
  }
  messages.finish();
  if (world.rank() == 1) {
    EXPECT_EQ(received, sent);
  }
}

TEST(Messages, WhatArrivesBetweenLooksIsToldOfOnceAndNotIfItWasWaitedFor) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "nobody to write to";
  constexpr std::array<std::size_t, 4> sizes = {200'000, 0, 1, 100'000};  // of several pieces, none, and one
  Messages messages(world);
  std::vector<std::vector<float>> sent, received;
  for (const std::size_t size : sizes) {
    sent.emplace_back(size, 2.0f);
    received.emplace_back(size);
  }
  if (world.rank() == 0) {
    for (const auto& letter : sent) messages.send(1, letter);
  } else if (world.rank() == 1) {
    for (auto& letter : received) messages.receive(0, letter);
    while (!messages.arrived(0, 4)) {
    }
    EXPECT_EQ(received, sent);
    messages.wait_for(0, 1);
  }
  messages.finish();
}

TEST(Messages, NothingHasArrivedBeforeItWasSent) {
  const Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "nobody to write to";
  const std::vector<float> sent(20'000, 2.0f);
  std::vector<float> received(sent.size());
  Messages messages(world);
  if (world.rank() == 1) {
    messages.receive(0, received);
    EXPECT_FALSE(messages.arrived(0, 1));
  }
  world.barrier();
  if (world.rank() == 0) messages.send(1, sent);
  messages.finish();
}

TEST(Messages, OneMayBeLongerThanAnIntCounts) {
  if (testing::kSanitized) GTEST_SKIP() << "gigabytes, checked byte by byte, take minutes";
  constexpr Index kFloats = (Index{1} << 30) + 3;  // three pieces: MPI is given bytes, an int of them at once
  const Communicator world = Communicator::world();
  if (world.size() > 2) GTEST_SKIP() << "seconds for one message; others would only watch it";
  const int last = world.size() - 1;
  const testing::FoldedFloats sent(kFloats), received(kFloats);
  std::ranges::fill(sent.values().last(3), 7.0f);
  Messages messages(world);
  if (world.rank() == last) messages.receive(0, received.values());
  if (world.rank() == 0) messages.send(last, sent.values());
  messages.finish();
  if (world.rank() == last) {
    EXPECT_EQ(received.values().back(), 7);
  }
}

TEST(Messages, ShowOnTheBoardWhomTheyWaitForWhenOnlySendsAreOpen) {
  Communicator world = Communicator::world();
  if (world.size() == 1) GTEST_SKIP() << "nobody to write to";
  std::vector<int> others;
  for (int rank = 1; rank < world.size(); ++rank) others.push_back(rank);
  testing::LateRank late(world);
  late.hold(world, 0, others, "MPI_Waitall");
  const std::vector<float> sent(100'000, 4.0f);  // longer than what leaves unasked
  std::vector<float> received(sent.size());
  Messages messages(world);
  if (world.rank() == 0) {
    for (const int rank : others) {
      messages.receive(rank, received);
      messages.wait_for(rank - 1, 1);
      EXPECT_EQ(received, sent);
    }
  } else {
    messages.send(0, sent);
  }
  messages.finish();
  EXPECT_EQ(late.board().read().call, "");
}

}  // namespace
}  // namespace moeloom
