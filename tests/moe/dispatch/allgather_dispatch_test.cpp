// What every token to every rank has alone. That rows are the right ones: dispatcher_test.
#include "moeloom/moe/dispatch/allgather_dispatch.hpp"

#include "moeloom/base/errors.hpp"

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kExperts = 8, kHidden = 6;

class AllgatherDispatchOnEveryRank : public ::testing::Test {
 protected:
  static Index tokens_of(int rank) { return 3 + 2 * rank; }
  DispatchPlan plan_with(AllgatherDispatch& dispatch, Index top_k) const {
    DispatchPlan plan;
    dispatch.plan(testing::random_choices(tokens_of(ep_.rank()), top_k, kExperts,
                                          static_cast<std::uint64_t>(ep_.rank())),
                  top_k, plan);
    return plan;
  }
  const Communicator ep_ = Communicator::world();
};

TEST_F(AllgatherDispatchOnEveryRank, ThePlanNamesTheTokenOfAllRanksThatLandsAtEachRow) {
  AllgatherDispatch dispatch(ep_, kExperts);
  const DispatchPlan plan = plan_with(dispatch, 3);
  const AllgatherPlan& own = std::get<AllgatherPlan>(plan.own);
  ASSERT_EQ(std::ssize(own.tokens_per_rank), ep_.size());
  Index first = 0;
  for (int rank = 0; rank < ep_.size(); ++rank) {
    EXPECT_EQ(own.tokens_per_rank[at(rank)], tokens_of(rank));
    if (rank < ep_.rank()) first += tokens_of(rank);
  }
  Matrix tokens(tokens_of(ep_.rank()), 1);  // each its number among all
  for (Index t = 0; t < tokens.rows(); ++t) tokens.view()(t, 0) = static_cast<float>(first + t);
  RowBuffer rows;
  dispatch.dispatch(plan, tokens, rows, std::nullopt);
  ASSERT_EQ(std::ssize(own.gathered_order), rows.rows());
  for (Index row = 0; row < rows.rows(); ++row)
    EXPECT_EQ(rows.view()(row, 0), static_cast<float>(own.gathered_order[at(row)]));
}

TEST_F(AllgatherDispatchOnEveryRank, ATokenTravelsOnceToEachRankForAnyNumberOfExperts) {
  for (const Index top_k : {Index{1}, Index{4}, kExperts}) {
    AllgatherDispatch dispatch(ep_, kExperts, find_nodes(ep_, ep_.size()));
    const DispatchPlan plan = plan_with(dispatch, top_k);
    const std::int64_t before = dispatch.network_bytes();
    RowBuffer rows;
    const Matrix tokens(tokens_of(ep_.rank()), kHidden);
    dispatch.dispatch(plan, tokens, rows, std::nullopt);
    constexpr Index kRowBytes = kHidden * static_cast<Index>(sizeof(float));
    EXPECT_EQ(dispatch.network_bytes() - before, (ep_.size() - 1) * tokens.rows() * kRowBytes);
  }
}

TEST(AllgatherDispatch, RefusesAPlanWithoutTheTokensOfAllRanks) {
  const Communicator alone = Communicator::self();
  DispatchPlan plan;
  AlltoallDispatch(alone, kExperts).plan(testing::random_choices(4, 2, kExperts, 1), 2, plan);
  RowBuffer rows;
  AllgatherDispatch dispatch(alone, kExperts);
  EXPECT_THROW(dispatch.dispatch(plan, Matrix(4, kHidden), rows, std::nullopt), ShapeError);
}

}  // namespace
}  // namespace moeloom
