#include "moe/dispatch/crossing_plan.hpp"

#include "moe/dispatch/dispatch_plan.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

// Ranks 0, 1 | 2, 3 | 4: nodes of unequal size; rank r holds expert r.
const NodeMap kNodes = node_map_of(std::vector<std::int64_t>{0, 0, 1, 1, 2});

TEST(CrossingRoutes, GoToOneRankOfEachOtherNodeAndMatchAtBothEnds) {
  EXPECT_EQ(crossing_routes(kNodes, 1).out, (std::vector<Index>{3, 4}));
  EXPECT_EQ(crossing_routes(kNodes, 1).in, (std::vector<Index>{3}));
  EXPECT_EQ(crossing_routes(kNodes, 4).out, (std::vector<Index>{0, 2}));
  EXPECT_EQ(crossing_routes(kNodes, 4).in, (std::vector<Index>{0, 1, 2, 3}));
  EXPECT_EQ(crossing_routes(kNodes, 4).out_routes, (std::vector<Index>{0, 1, -1}));
}

/// A plan of rank 0 whose slot i lands on ranks[i], at row 10 + i.
DispatchPlan plan_to(const std::vector<Index>& ranks, Index top_k) {
  DispatchPlan plan;
  std::vector<Landing>& landings = make_own<HierarchicalPlan>(plan).landings;
  plan.top_k = top_k;
  plan.tokens = std::ssize(ranks) / top_k;
  for (const Index rank : ranks)  // -1: no expert
    landings.push_back({rank, rank < 0 ? -1 : 10 + std::ssize(landings)});
  return plan;
}

struct Case {
  const char* name;
  std::vector<Index> ranks;  // of the slots of one token of rank 0
  CombineMode mode;
  Index tokens, copies, sums;  // to node 1
};

TEST(CrossingPlan, ATokenCrossesOnceAndReturnsWhatItsSumNeeds) {
  const std::vector<Case> cases = {
      {"all at home", {0, 1, 0, 1}, CombineMode::kExact, 0, 0, 0},
      {"all there, one sum is exact", {2, 3, 3, 2}, CombineMode::kExact, 1, 4, 1},
      {"alternating", {2, 0, 3, 1}, CombineMode::kExact, 1, 2, 2},
      {"the opening is a sum, what follows is not", {2, 3, 0, 2}, CombineMode::kExact, 1, 3, 2},
      {"not the opening", {0, 2, 3, 2}, CombineMode::kExact, 1, 3, 3},
      {"the opening is another node's", {4, 2, 3, 2}, CombineMode::kExact, 1, 3, 3},
      {"one sum always", {2, 0, 3, 1}, CombineMode::kFast, 1, 2, 1},
      {"one sum of all but one", {0, 2, 3, 2}, CombineMode::kFast, 1, 3, 1},
      {"a sum opens after a slot without an expert", {-1, 2, 3, 0}, CombineMode::kExact, 1, 2, 1},
      {"and goes on after one", {2, -1, 3, 2}, CombineMode::kExact, 1, 3, 1},
      {"no expert at all", {-1, -1, -1, -1}, CombineMode::kExact, 0, 0, 0},
  };
  for (const Case& c : cases) {
    DispatchPlan plan = plan_to(c.ranks, 4);
    HierarchicalPlan& own = make_own<HierarchicalPlan>(plan);
    const CrossingRoutes routes = crossing_routes(kNodes, 0);
    plan_leaving({kNodes, routes, 0, c.mode}, plan, own);
    const auto& copies = own.crossing.leaving_copies;
    const CrossingCounts& counts = own.crossing.leaving.front();
    EXPECT_EQ(counts.tokens, c.tokens) << c.name;
    EXPECT_EQ(counts.copies, c.copies) << c.name;
    EXPECT_EQ(counts.sums, c.sums) << c.name;
    CrossingPlan there;
    plan_arriving(copies, std::vector<Index>{c.copies, std::ssize(copies) - c.copies}, there);
    EXPECT_EQ(there.arriving.front().tokens, c.tokens) << c.name;
    EXPECT_EQ(there.arriving.front().sums, c.sums) << c.name;
  }
}

TEST(CrossingPlan, ATokenWithoutAnyExpertHasNoSummand) {
  DispatchPlan plan = plan_to({1, -1, /*next token*/ -1, -1, /*next*/ -1, 2}, 2);
  const CrossingRoutes routes = crossing_routes(kNodes, 0);
  HierarchicalPlan& own = make_own<HierarchicalPlan>(plan);
  plan_leaving({kNodes, routes, 0, CombineMode::kExact}, plan, own);
  EXPECT_EQ(own.crossing.summand_offsets, (std::vector<Index>{0, 1, 1, 2}));
  EXPECT_EQ(own.crossing.tokens, (std::vector<Index>{2}));
  EXPECT_EQ(own.crossing.slots, (std::vector<Index>{5}));
}

TEST(CrossingPlan, RowsForANodeAreThoseOfItsRanks) {
  const std::vector<Index> sent = {1, 20, 300, 4000, 50000};
  EXPECT_EQ(rows_for_node(kNodes, 0, sent), 1 + 20);
  EXPECT_EQ(rows_for_node(kNodes, 1, sent), 300 + 4000);
}

TEST(CrossingPlan, SummandsKeepSlotOrderAndNameWhereEachComesFrom) {
  DispatchPlan plan = plan_to({1, 4, 0, 2, /*next token*/ 2, 3, 1, 4}, 4);
  const CrossingRoutes routes = crossing_routes(kNodes, 0);
  HierarchicalPlan& own = make_own<HierarchicalPlan>(plan);
  plan_leaving({kNodes, routes, 0, CombineMode::kExact}, plan, own);
  const auto& copies = own.crossing.leaving_copies;
  const CrossingPlan& crossing = own.crossing;
  // Sources 0, 1: members of this node; 2: node 1 by its route; 3: node 2.
  const std::vector<std::pair<Index, Index>> expected = {{1, 10}, {3, 0},  {0, 12}, {2, 0},
                                                         {2, 1},  {1, 16}, {3, 1}};
  ASSERT_EQ(crossing.summands.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(crossing.summands[i].source, expected[i].first) << i;
    EXPECT_EQ(crossing.summands[i].row, expected[i].second) << i;
  }
  EXPECT_EQ(crossing.summand_offsets, (std::vector<Index>{0, 4, 7}));
  EXPECT_EQ(crossing.tokens, (std::vector<Index>{0, 1, 0, 1}));  // to node 1, then to node 2
  EXPECT_EQ(crossing.slots, (std::vector<Index>{3, 4, 5, 1, 7}));
  ASSERT_EQ(copies.size(), 5u);
  EXPECT_EQ(copies[2].row, 15);
  EXPECT_EQ(copies[2].member, 1);
  EXPECT_EQ(copies[2].new_sum, 0);  // opens its token's sum together with the copy before
}

}  // namespace
}  // namespace moeloom
