// What rows through a node's memory need, and where they lie. That they are the right ones: dispatcher_test.
#include "moeloom/moe/dispatch/shared_dispatch.hpp"

#include "moeloom/base/errors.hpp"

#include "dispatch/foreign_plan.hpp"
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
  const Index enough = SharedDispatch::mailbox_bytes(kExperts);
  EXPECT_NO_THROW(SharedDispatch(ep, kExperts, memory_of(ep, enough)));
  const auto small = memory_of(alone, SharedDispatch::mailbox_bytes(1));
  EXPECT_THROW(SharedDispatch(alone, 4096, small), ShapeError);
  if (ep.size() > 1) {
    EXPECT_THROW(SharedDispatch(ep, kExperts, memory_of(alone, enough)), ShapeError);
  }
  EXPECT_THROW(SharedDispatch(ep, kExperts, nullptr), ShapeError);
}

TEST(SharedDispatch, RowsLandAndStayInTheMemoryOfTheNode) {
  const Communicator ep = Communicator::world();
  const auto memory = memory_of(ep, SharedDispatch::mailbox_bytes(kExperts));
  SharedDispatch dispatch(ep, kExperts, memory);
  const auto seed = static_cast<std::uint64_t>(ep.rank());
  const Matrix tokens = testing::random_matrix(kTokens, kHidden, seed);
  DispatchPlan plan;
  RowBuffer rows;
  const float* first = nullptr;
  for (int turn = 0; turn < 3; ++turn) {
    dispatch.plan(testing::random_choices(kTokens, kTopK, kExperts, seed), kTopK, plan);
    EXPECT_TRUE(plan.landing_order.empty()) << "nothing arrives before it lands";
    dispatch.dispatch(plan, tokens, rows, std::nullopt);
    EXPECT_EQ(rows.memory(), memory.get());
    EXPECT_EQ(rows.rows(), plan.rows());
    if (turn == 0) first = rows.view().data;
    EXPECT_EQ(rows.view().data, first) << "memory that is large enough is kept";
    Matrix sums(kTokens, kHidden);
    dispatch.combine(plan, rows, sums, Write::kReplace, std::nullopt);
    for (Index i = 0; i < tokens.view().size(); ++i)
      EXPECT_EQ(sums.view().data[i], 2 * tokens.view().data[i]);
  }
  EXPECT_EQ(dispatch.network_bytes(), 0);
}

TEST(SharedDispatch, RefusesAPlanThatDoesNotSayWhereRowsLand) {
  const Communicator alone = Communicator::self();
  SharedDispatch dispatch(alone, kExperts, memory_of(alone, SharedDispatch::mailbox_bytes(kExperts)));
  testing::expect_refusal_of_a_foreign_plan(dispatch, kExperts);
}

}  // namespace
}  // namespace moeloom
