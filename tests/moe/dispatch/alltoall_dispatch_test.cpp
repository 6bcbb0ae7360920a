// What MPI_Alltoallv's way has alone. That rows are the right ones: dispatcher_test.
#include "moeloom/moe/dispatch/alltoall_dispatch.hpp"

#include <bit>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kExperts = 8, kTopK = 3;

class AlltoallDispatchOnEveryRank : public ::testing::Test {
 protected:
  Index count() const { return 3 + 2 * ep_.rank(); }
  DispatchPlan plan_with(AlltoallDispatch& dispatch) const {
    DispatchPlan plan;
    dispatch.plan(testing::random_choices(count(), kTopK, kExperts, static_cast<std::uint64_t>(ep_.rank())),
                  kTopK, plan);
    return plan;
  }
  const Communicator ep_ = Communicator::world();
};

TEST_F(AlltoallDispatchOnEveryRank, NumbersAloneLandWhereTheirRowsDo) {
  AlltoallDispatch dispatch(ep_, kExperts);
  const DispatchPlan plan = plan_with(dispatch);
  Matrix tokens(count(), 1);
  std::vector<float> slots;
  for (Index t = 0; t < tokens.rows(); ++t) {
    tokens.view()(t, 0) = static_cast<float>(100 * ep_.rank() + t);
    slots.insert(slots.end(), at(kTopK), tokens.view()(t, 0));
  }
  RowBuffer rows;
  dispatch.dispatch(plan, tokens, rows, std::nullopt);
  std::vector<float> landed;
  dispatch.send_scalars(plan, {slots, landed});
  ASSERT_EQ(std::ssize(landed), rows.rows());
  for (Index row = 0; row < rows.rows(); ++row) EXPECT_EQ(landed[at(row)], rows.view()(row, 0));
}

/// Numbers beside rows carry bits as well (the allgather way sends integers in them).
TEST_F(AlltoallDispatchOnEveryRank, NumbersKeepTheirBitsWhateverTheWireRounds) {
  AlltoallDispatch dispatch(ep_, kExperts, {}, WireDType::kBf16);
  const DispatchPlan plan = plan_with(dispatch);
  const float odd = std::bit_cast<float>(std::int32_t{1234567});
  const std::vector<float> slots(at(plan.slots()), odd);
  std::vector<float> landed;
  dispatch.send_scalars(plan, {slots, landed});
  for (const float number : landed)
    EXPECT_EQ(std::bit_cast<std::int32_t>(number), std::bit_cast<std::int32_t>(odd));
}

TEST_F(AlltoallDispatchOnEveryRank, Bf16RoundsRowsThatStayLikeThoseThatTravel) {
  AlltoallDispatch dispatch(ep_, kExperts, {}, WireDType::kBf16);
  const DispatchPlan plan = plan_with(dispatch);
  Matrix tokens(count(), 5);
  fill(tokens, 1 + 0x1p-12f);
  RowBuffer rows;
  dispatch.dispatch(plan, tokens, rows, std::nullopt);
  const float expected = ep_.size() > 1 ? 1.0f : 1 + 0x1p-12f;  // one rank sends nothing
  for (const float number : rows.view().flat()) EXPECT_EQ(number, expected);
}

}  // namespace
}  // namespace moeloom
