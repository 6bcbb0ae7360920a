// What rows through the memory of a node that has all ranks need, and where they lie. That they are the right
// ones: dispatcher_test.
#include "moe/dispatch/hierarchical_dispatch.hpp"
#include "moeloom/base/errors.hpp"

#include "dispatch/trips.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kExperts = 8, kTopK = 2, kTokens = 5, kHidden = 3;

std::shared_ptr<NodeMemory> memory_of(const Communicator& ep, Index mailbox_bytes) {
  return std::make_shared<NodeMemory>(ep, mailbox_bytes);
}

TEST(SharedDispatch, NeedsMemoryOfItsRanksWithRoomForEveryCount) {
  const Communicator ep = Communicator::world(), alone = Communicator::self();
  const auto make = [](const Communicator& ranks, Index experts, const std::shared_ptr<NodeMemory>& memory) {
    HierarchicalDispatch(ranks, experts, 1, {.nodes = find_nodes(ranks, 1), .memory = memory});
  };
  const Index enough = HierarchicalDispatch::mailbox_bytes(kExperts);
  EXPECT_NO_THROW(make(ep, kExperts, memory_of(ep, enough)));
  EXPECT_THROW(make(alone, 4096, memory_of(alone, HierarchicalDispatch::mailbox_bytes(1))), ShapeError);
  if (ep.size() > 1) {
    EXPECT_THROW(make(ep, kExperts, memory_of(alone, enough)), ShapeError);
  }
  EXPECT_THROW(make(ep, kExperts, nullptr), ShapeError);
}

TEST(SharedDispatch, RowsLandAndStayInTheMemoryOfTheNode) {
  const Communicator ep = Communicator::world();
  const auto memory = memory_of(ep, HierarchicalDispatch::mailbox_bytes(kExperts));
  HierarchicalDispatch dispatch(ep, kExperts, 1, {.nodes = find_nodes(ep, 1), .memory = memory});
  const auto seed = static_cast<std::uint64_t>(ep.rank());
  const Matrix tokens = testing::random_matrix(kTokens, kHidden, seed);
  DispatchPlan plan;
  RowBuffer rows, results;
  Matrix sums(kTokens, kHidden);
  const float* first = nullptr;
  for (int turn = 0; turn < 3; ++turn) {
    dispatch.plan(testing::random_choices(kTokens, kTopK, kExperts, seed), kTopK, plan);
    EXPECT_TRUE(plan.landing_order.empty()) << "nothing arrives before it lands";
    testing::travel(dispatch, {.plan = plan,
                               .tokens = tokens,
                               .rows = rows,
                               .scalars_out = std::nullopt,
                               .results = results,
                               .sums = sums});
    for (const RowBuffer* made : {&rows, &results}) {
      EXPECT_EQ(made->memory(), memory.get());
      EXPECT_EQ(made->rows(), plan.rows());
    }
    if (turn == 0) first = rows.view().data;
    EXPECT_EQ(rows.view().data, first) << "memory that is large enough is kept";
    for (Index i = 0; i < tokens.view().size(); ++i)
      EXPECT_EQ(sums.view().data[i], 2 * tokens.view().data[i]);
  }
  EXPECT_EQ(dispatch.network_bytes(), 0);
}

}  // namespace
}  // namespace moeloom
