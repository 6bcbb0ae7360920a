#include "comm/node_map.hpp"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(NodeMap, NumbersNodesAndTheirMembersInTheOrderOfRanks) {
  const std::vector<std::int64_t> names = {7, 3, 7, 3, 3};
  const NodeMap map = node_map_of(names);
  EXPECT_EQ(map.nodes(), 2);
  EXPECT_EQ(map.node_of, (std::vector<Index>{0, 1, 0, 1, 1}));
  EXPECT_EQ(map.member_of, (std::vector<Index>{0, 0, 1, 1, 2}));
  EXPECT_EQ(map.members, (std::vector<std::vector<Index>>{{0, 2}, {1, 3, 4}}));
  EXPECT_TRUE(map.same_node(1, 4));
  EXPECT_FALSE(map.same_node(0, 1));
}

TEST(NodeMap, SaysWhetherNodesAreSubtreesAndWhoTakesForThem) {
  const auto map_of = [](std::vector<std::int64_t> names) { return node_map_of(names); };
  EXPECT_EQ(map_of({0, 0, 1, 1, 2, 2}).subtree_ranks(), 2);
  EXPECT_EQ(map_of({0, 1, 2}).subtree_ranks(), 1);
  EXPECT_EQ(map_of({0, 1, 0, 1}).subtree_ranks(), 0) << "ranks of a node are no neighbours";
  EXPECT_EQ(map_of({0, 0, 0, 1, 1, 1}).subtree_ranks(), 0) << "three are no subtree";
  EXPECT_EQ(map_of({0, 0, 1}).subtree_ranks(), 0);
  const NodeMap map = map_of({0, 0, 0, 1, 1});
  EXPECT_TRUE(map.shared());
  EXPECT_FALSE(map_of({0, 1, 2}).shared());
  EXPECT_EQ(map.taker_on(0, 1), 1) << "on its own node";
  EXPECT_EQ(map.taker_on(1, 1), 4);
  EXPECT_EQ(map.taker_on(1, 2), 3) << "a node of fewer ranks";
}

TEST(NodeMap, FindsThatTheRanksOfThisTestShareOneMachine) {
  const Communicator world = Communicator::world();
  const NodeMap map = find_nodes(world);
  EXPECT_EQ(map.nodes(), 1);
  std::vector<Index> all(at(world.size()));
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(map.members.front(), all);
}

TEST(NodeMap, PretendsNodesOfNeighbouringRanksAndNoneThatIsEmpty) {
  const Communicator world = Communicator::world();
  for (Index pretended = 1; pretended <= 6; ++pretended) {
    const NodeMap map = find_nodes(world, pretended);
    EXPECT_EQ(map.nodes(), std::min<Index>(pretended, world.size()));
    for (Index node = 0; node < map.nodes(); ++node) {
      ASSERT_FALSE(map.members[at(node)].empty());
      EXPECT_EQ(map.members[at(node)].back() - map.members[at(node)].front() + 1,
                std::ssize(map.members[at(node)]));
    }
  }
}

}  // namespace
}  // namespace moeloom
