// What crossing between nodes needs and sends. That rows are the right ones: dispatcher_test.
#include "moe/dispatch/hierarchical_dispatch.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/comm/mesh.hpp"

#include <set>

#include "dispatch/foreign_plan.hpp"
#include "dispatch/trips.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kExperts = 8, kTopK = 5, kTokens = 40, kHidden = 6;
constexpr Index kFloatBytes = sizeof(float);

std::shared_ptr<NodeMemory> memory_of(const Communicator& ep, const NodeMap& nodes) {
  return std::make_shared<NodeMemory>(ep.split(static_cast<int>(nodes.node_of[at(ep.rank())]), ep.rank()),
                                      HierarchicalDispatch::mailbox_bytes(kExperts));
}

Index node_of_expert(const NodeMap& nodes, int ranks, Index expert) {
  for (int rank = 0; rank < ranks; ++rank) {
    const ExpertRange held = experts_of(kExperts, ranks, rank);
    if (expert >= held.begin && expert < held.begin + held.count) return nodes.node_of[at(rank)];
  }
  return -1;
}

/// Counted one by one: what a rank has for other nodes.
struct Crossing {
  Index tokens = 0;  // once for each other node
  Index copies = 0;
};
Crossing crossing_of(std::span<const std::int32_t> chosen, const NodeMap& nodes, const Communicator& ep) {
  Crossing crossing;
  for (Index token = 0; token < kTokens; ++token) {
    std::set<Index> others;
    for (const std::int32_t expert : chosen.subspan(at(token * kTopK), at(kTopK))) {
      const Index node = node_of_expert(nodes, ep.size(), expert);
      if (node == nodes.node_of[at(ep.rank())]) continue;
      others.insert(node);
      ++crossing.copies;
    }
    crossing.tokens += std::ssize(others);
  }
  return crossing;
}

TEST(HierarchicalDispatch, SendsATokenOnceToEachNodeAndFastSumsComeBackAsOne) {
  const Communicator ep = Communicator::world();
  for (const Index pretended : {1, 2, 3, 4}) {
    const NodeMap nodes = find_nodes(ep, pretended);
    HierarchicalDispatch dispatch(
        ep, kExperts, 1, {.nodes = nodes, .memory = memory_of(ep, nodes), .combine = CombineMode::kFast});
    const auto chosen =
        testing::random_choices(kTokens, kTopK, kExperts, static_cast<std::uint64_t>(ep.rank()));
    const Crossing crossing = crossing_of(chosen, nodes, ep);
    DispatchPlan plan;
    dispatch.plan(chosen, kTopK, plan);
    const std::int64_t planned = dispatch.network_bytes();
    EXPECT_EQ(planned, crossing.copies * static_cast<Index>(sizeof(CrossingCopy)));
    RowBuffer rows, results;
    const Matrix tokens(kTokens, kHidden);
    Matrix sums(kTokens, kHidden);
    const RoundTrip trip{.plan = plan,
                         .tokens = tokens,
                         .rows = rows,
                         .scalars_out = std::nullopt,
                         .results = results,
                         .sums = sums};
    dispatch.begin(trip);
    dispatch.await(trip, 0);
    const std::int64_t out = dispatch.network_bytes() - planned;
    EXPECT_EQ(out, crossing.tokens * kHidden * kFloatBytes);

    testing::return_chunk(trip, 0);
    dispatch.send_back(trip, 0);
    dispatch.finish(trip);
    // What goes back is counted by who sends it: over all ranks it is what went out.
    std::vector<std::int64_t> bytes = {dispatch.network_bytes() - planned - out, out};
    ep.all_sum(bytes);
    EXPECT_EQ(bytes[0], bytes[1]);
  }
}

TEST(HierarchicalDispatch, NeedsTheNodesOfItsRanksAndTheMemoryOfItsOwn) {
  const Communicator ep = Communicator::world();
  const NodeMap one = find_nodes(ep, 1), each = find_nodes(ep, ep.size());
  const auto memory = memory_of(ep, one);
  EXPECT_NO_THROW(HierarchicalDispatch(ep, kExperts, 1, {.nodes = one, .memory = memory}));
  EXPECT_THROW(HierarchicalDispatch(ep, kExperts, 1, {.memory = memory}), ShapeError);
  EXPECT_THROW(HierarchicalDispatch(ep, kExperts, 1, {.nodes = one}), ShapeError);
  if (ep.size() > 1) {
    EXPECT_THROW(HierarchicalDispatch(ep, kExperts, 1, {.nodes = each, .memory = memory}), ShapeError);
  }
}

TEST(HierarchicalDispatch, RefusesAPlanThatDoesNotSayWhatCrosses) {
  const Communicator alone = Communicator::self();
  const NodeMap nodes = find_nodes(alone);
  HierarchicalDispatch dispatch(alone, kExperts, 1, {.nodes = nodes, .memory = memory_of(alone, nodes)});
  testing::expect_refusal_of_a_foreign_plan(dispatch, kExperts);
}

}  // namespace
}  // namespace moeloom
