// What the ranks of a node see of each other's rows, and until when.
#include "moeloom/moe/dispatch/node_rows.hpp"

#include "moeloom/base/errors.hpp"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kCols = 3;

class NodeRowsOnEveryRank : public ::testing::Test {
 protected:
  /// A rank's rows, of another number on each rank and in each round.
  Index count_of(Index round, int rank) const { return (round + rank) % 4; }
  float value_of(Index round, int owner, int other) const {
    return static_cast<float>(round * 100 + owner * 10 + other);
  }
  void be_late(Index round) const {
    if (round % size_ == rank_) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }

  const std::shared_ptr<NodeMemory> memory_ =
      std::make_shared<NodeMemory>(Communicator::world().split_by_node(), NodeRows::mailbox_bytes());
  const int rank_ = memory_->rank(), size_ = memory_->size();
  NodeRows node_{memory_};
};

TEST_F(NodeRowsOnEveryRank, OthersWriteIntoRowsThatAreOpenUntilTheyClose) {
  RowBuffer rows;
  for (Index round = 0; round < 40; ++round) {
    const bool with_scalars = round % 3 != 0;
    // A row and a number for each rank of the node: none is written by two.
    node_.open(rows, size_, kCols, with_scalars);
    for (int owner = 0; owner < size_; ++owner) {
      std::fill_n(node_.rows_of(owner) + rank_ * kCols, kCols, value_of(round, owner, rank_));
      if (with_scalars) node_.scalars_of(owner)[rank_] = -value_of(round, owner, rank_);
    }
    be_late(round);
    std::vector<float> landed;
    const std::vector<float> slots;
    node_.close(with_scalars ? std::optional(ScalarsOut{slots, landed}) : std::nullopt);
    EXPECT_EQ(std::ssize(landed), with_scalars ? size_ : 0);
    for (int other = 0; other < size_; ++other) {
      for (Index j = 0; j < kCols; ++j)
        EXPECT_EQ(rows.view()(other, j), value_of(round, rank_, other)) << "round " << round;
      if (with_scalars) {
        EXPECT_EQ(landed[at(other)], -value_of(round, rank_, other)) << "round " << round;
      }
    }
  }
}

TEST_F(NodeRowsOnEveryRank, OthersReadWhatIsShownAlsoWhileTheNextIsMade) {
  std::array<RowBuffer, 2> rows;
  std::vector<float> slots;
  for (Index round = 0; round < 40; ++round) {
    // The numbers' memory is by turns the dispatcher's own; the rows' is its caller's to alternate.
    RowBuffer& mine = rows[at(round % 2)];
    const Index count = count_of(round, rank_);
    node_.prepare(mine, count, kCols);
    std::fill_n(mine.view().data, count * kCols, value_of(round, rank_, 0));
    const std::vector<float> numbers(at(count), -value_of(round, rank_, 0));
    node_.show(mine, ScalarsBack{numbers, slots});
    be_late(round);  // the others go on and write what they show next
    for (int owner = 0; owner < size_; ++owner)
      for (Index row = 0; row < count_of(round, owner); ++row) {
        for (Index j = 0; j < kCols; ++j)
          EXPECT_EQ(node_.rows_of(owner)[row * kCols + j], value_of(round, owner, 0)) << "round " << round;
        EXPECT_EQ(node_.scalars_of(owner)[row], -value_of(round, owner, 0)) << "round " << round;
      }
  }
}

TEST_F(NodeRowsOnEveryRank, PrepareTakesRowsIntoThisMemoryAndKeepsThemThere) {
  RowBuffer rows = Matrix(2, kCols);
  EXPECT_EQ(rows.memory(), nullptr);
  node_.prepare(rows, 5, kCols);
  EXPECT_EQ(rows.memory(), memory_.get());
  EXPECT_EQ(rows.rows(), 5);
  const float* data = rows.view().data;
  node_.prepare(rows, 4, kCols);
  EXPECT_EQ(rows.view().data, data);
}

TEST_F(NodeRowsOnEveryRank, RefusesToShowRowsOfOtherMemory) {
  EXPECT_THROW(node_.show(Matrix(2, kCols), std::nullopt), ShapeError);
  const auto alone = std::make_shared<NodeMemory>(Communicator::self(), NodeRows::mailbox_bytes());
  RowBuffer elsewhere;
  NodeRows(alone).prepare(elsewhere, 2, kCols);
  EXPECT_THROW(node_.show(elsewhere, std::nullopt), ShapeError);
}

TEST(NodeRows, NeedMemory) {
  EXPECT_THROW(NodeRows(nullptr), ShapeError);
}

}  // namespace
}  // namespace moeloom
