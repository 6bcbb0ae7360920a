// What counters of a node's ranks promise of rows and numbers that were written before.
#include "dispatch/node_chunks.hpp"

#include "moeloom/base/errors.hpp"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kChunks = 3, kCols = 5;

float value_of(Index round, Index chunk, int from, int to) {
  return static_cast<float>(1000 * round + 100 * chunk + 10 * from + to);
}

void await(const NodeChunks& node, NodeChunks::Counter counter, Index least) {
  NodeWait wait(nullptr);
  while (!node.all(counter, least)) wait.pause();
}

/// A row of each chunk from every rank, told of chunk by chunk; then as many results, which the others read.
/// Ranks are late by turns, writers and readers, so that some are a trip ahead; buffers grow from trip to
/// trip, whose old blocks a late reader must still find.
TEST(NodeChunks, WhatARankDidBeforeItTellsIsThereForWhoSeesTheCount) {
  const auto memory =
      std::make_shared<NodeMemory>(Communicator::world().split_by_node(), NodeChunks::mailbox_bytes());
  const int rank = memory->rank(), size = memory->size();
  NodeChunks node(memory, kChunks);
  RowBuffer rows, results;
  const auto place = [&](Index chunk, int from) { return chunk * size + from; };
  for (Index round = 0; round < 60; ++round) {
    node.open(rows, results, kChunks * size * (1 + 20 * round), kCols);
    for (Index chunk = 0; chunk < kChunks; ++chunk) {
      if (round % size == rank) std::this_thread::sleep_for(std::chrono::microseconds(100));
      for (int to = 0; to < size; ++to) {
        const NodeChunks::Member& member = node.member(to);
        std::fill_n(member.rows + place(chunk, rank) * kCols, kCols, value_of(round, chunk, rank, to));
        member.row_scalars[place(chunk, rank)] = -value_of(round, chunk, rank, to);
      }
      node.tell(NodeChunks::kWritten, chunk + 1);
    }
    for (Index chunk = 0; chunk < kChunks; ++chunk) {
      await(node, NodeChunks::kWritten, chunk + 1);
      for (int from = 0; from < size; ++from) {
        const Index row = place(chunk, from);
        for (Index j = 0; j < kCols; ++j)
          ASSERT_EQ(rows.view()(row, j), value_of(round, chunk, from, rank)) << "round " << round;
        ASSERT_EQ(node.row_scalars()[at(row)], -value_of(round, chunk, from, rank));
        std::fill_n(results.view().row(row), kCols, 2 * value_of(round, chunk, from, rank));
        node.result_scalars()[at(row)] = 3 * value_of(round, chunk, from, rank);
      }
      node.tell(NodeChunks::kComputed, chunk + 1);
    }
    for (Index chunk = 0; chunk < kChunks; ++chunk) {
      await(node, NodeChunks::kComputed, chunk + 1);
      if ((round + 1) % size == rank) std::this_thread::sleep_for(std::chrono::microseconds(100));
      for (int by = 0; by < size; ++by) {
        const Index row = place(chunk, rank);
        for (Index j = 0; j < kCols; ++j)
          ASSERT_EQ(node.member(by).results[row * kCols + j], 2 * value_of(round, chunk, rank, by));
        ASSERT_EQ(node.member(by).result_scalars[row], 3 * value_of(round, chunk, rank, by));
      }
    }
  }
}

TEST(NodeChunks, ACountOfTheTripBeforeIsNoneOfThisOne) {
  const auto memory = std::make_shared<NodeMemory>(Communicator::self(), NodeChunks::mailbox_bytes());
  NodeChunks node(memory, kChunks);
  RowBuffer rows, results;
  for (int trip = 0; trip < 3; ++trip) {
    node.open(rows, results, 0, kCols);
    EXPECT_FALSE(node.all(NodeChunks::kWritten, 1));
    EXPECT_EQ(node.behind(NodeChunks::kWritten, 1), 0);
    node.tell(NodeChunks::kWritten, kChunks);
    EXPECT_TRUE(node.all(NodeChunks::kWritten, kChunks));
    EXPECT_FALSE(node.all(NodeChunks::kComputed, 1)) << "of another counter";
  }
}

TEST(NodeChunks, NeedMemoryWithAMailbox) {
  EXPECT_THROW(NodeChunks(nullptr, 1), ShapeError);
  EXPECT_THROW(NodeChunks(std::make_shared<NodeMemory>(Communicator::self(), 0), 1), ShapeError);
}

}  // namespace
}  // namespace moeloom
