// A plan that another kind of dispatcher made.
#pragma once

#include "moe/dispatch/round_trip.hpp"
#include "moeloom/base/errors.hpp"

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {

/// It says where rows leave and arrive, as alltoall needs it, but not where they land or cross. `dispatch` is
/// of one rank and `experts` experts.
template <typename Dispatch>
void expect_refusal_of_a_foreign_plan(Dispatch& dispatch, Index experts) {
  constexpr Index kTokens = 5, kTopK = 2, kHidden = 3;
  DispatchPlan plan;
  plan_sending(random_choices(kTokens, kTopK, experts, 1), kTopK, experts, 1, plan);
  plan_receiving(plan.tokens_per_expert, plan);
  RowBuffer rows, results;
  Matrix tokens(kTokens, kHidden);
  EXPECT_THROW(dispatch.begin({.plan = plan,
                               .tokens = tokens,
                               .rows = rows,
                               .scalars_out = std::nullopt,
                               .results = results,
                               .sums = tokens}),
               ShapeError);
}

}  // namespace moeloom::testing
