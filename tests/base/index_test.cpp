#include "moeloom/base/index.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(CeilDiv, CountsTheBlocksThatCover) {
  struct Case {
    Index items, block, blocks;
  };
  for (const Case c :
       {Case{0, 4, 0}, {1, 4, 1}, {4, 4, 1}, {5, 4, 2}, {7, 1, 7}, {Index{1} << 40, 1 << 20, 1 << 20}})
    EXPECT_EQ(ceil_div(c.items, c.block), c.blocks) << c.items << " in blocks of " << c.block;
}

}  // namespace
}  // namespace moeloom
