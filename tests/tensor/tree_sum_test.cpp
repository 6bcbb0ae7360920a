#include "tensor/tree_sum.hpp"

#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

struct Pair {
  std::string text;
  friend Pair operator+(const Pair& a, const Pair& b) { return {"(" + a.text + b.text + ")"}; }
};

std::string tree_of(Index lo, Index hi) {
  return tree_sum(lo, hi, [](Index i) { return Pair{std::to_string(i)}; }).text;
}

TEST(TreeSum, PairsNeighboursWithFullSubtreesOnTheLeft) {
  EXPECT_EQ(tree_of(0, 1), "0");
  EXPECT_EQ(tree_of(0, 2), "(01)");
  EXPECT_EQ(tree_of(0, 3), "((01)2)");
  EXPECT_EQ(tree_of(0, 4), "((01)(23))");
  EXPECT_EQ(tree_of(0, 7), "(((01)(23))((45)6))");
  EXPECT_EQ(tree_of(0, 8), "(((01)(23))((45)(67)))");
}

TEST(TreeSum, HasEveryAlignedRowOfAPowerOfTwoAsASubtree) {
  for (const Index world : {Index{4}, Index{8}, Index{12}, Index{16}})
    for (const Index ep : {Index{1}, Index{2}, Index{4}})
      for (Index row = 0; row < world; row += ep)
        EXPECT_NE(tree_of(0, world).find(tree_of(row, row + ep)), std::string::npos)
            << "ranks " << row << " to " << row + ep << " of " << world;
}

class TreeSumBlocks : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_threads(GetParam()); }
  void TearDown() override { set_threads(before_); }

 private:
  int before_ = threads();
};

TEST_P(TreeSumBlocks, AddsEachElementAlongTheTree) {
  for (const Index leaves : {Index{1}, Index{2}, Index{3}, Index{5}, Index{8}})
    for (const Index count : {Index{0}, Index{1}, Index{1024}, Index{2500}}) {
      const Index stride = count + 3;
      std::vector<float> blocks(static_cast<std::size_t>(leaves * stride));
      const CounterRandom random(31, static_cast<std::uint64_t>(leaves * 10'000 + count));
      for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<float>(random.normal(i));
      std::vector<float> expected;
      for (Index j = 0; j < count; ++j)
        expected.push_back(tree_sum(
            Index{0}, leaves, [&](Index i) { return blocks[static_cast<std::size_t>(i * stride + j)]; }));
      // The target may be the first block.
      tree_sum_blocks(blocks.data(), leaves, stride, count, blocks.data());
      blocks.resize(static_cast<std::size_t>(count));
      EXPECT_EQ(blocks, expected) << leaves << " leaves of " << count;
    }
}

INSTANTIATE_TEST_SUITE_P(Threads, TreeSumBlocks, ::testing::Values(1, 3));

}  // namespace
}  // namespace moeloom
