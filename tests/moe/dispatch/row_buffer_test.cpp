// Rows in a process's own memory or in its node's: the same to who fills them.
#include "moe/dispatch/row_buffer.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(RowBuffer, IsEmptyUntilItIsShaped) {
  const RowBuffer rows;
  EXPECT_EQ(rows.rows(), 0);
  EXPECT_EQ(rows.memory(), nullptr);
}

TEST(RowBuffer, KeepsMemoryThatIsLargeEnough) {
  const auto memory = std::make_shared<NodeMemory>(Communicator::world().split_by_node(), 64);
  for (const bool shared : {false, true}) {
    RowBuffer rows = shared ? RowBuffer(memory) : RowBuffer();
    rows.reshape_uninitialised(40, 3);
    const float* const first = rows.view().data;
    rows.reshape_uninitialised(30, 4);
    EXPECT_EQ(rows.view().data, first);
    EXPECT_EQ(rows.view().rows, 30);
    EXPECT_EQ(rows.view().cols, 4);
    EXPECT_THROW(rows.reshape_uninitialised(-1, 4), ShapeError);
  }
}

TEST(RowBuffer, LiesWhereEveryRankOfTheNodeFindsIt) {
  const auto memory = std::make_shared<NodeMemory>(Communicator::world().split_by_node(), 64);
  RowBuffer rows(memory);
  for (const Index count : {5, 50'000}) {  // the second one has to move
    rows.reshape_uninitialised(count, 7);
    for (float& value : rows.view().flat()) value = static_cast<float>(memory->rank() + count);
    const auto offsets = Communicator::world().all_gather(std::vector<std::int64_t>{rows.offset()});
    memory->meet();
    for (int rank = 0; rank < memory->size(); ++rank) {
      const auto* theirs = reinterpret_cast<const float*>(memory->address(rank, offsets[at(rank)]));
      EXPECT_EQ(theirs[0], static_cast<float>(rank + count));
      EXPECT_EQ(theirs[7 * count - 1], static_cast<float>(rank + count));
    }
    memory->meet();
  }
}

}  // namespace
}  // namespace moeloom
