// A plan that another kind of dispatcher made.
#pragma once

#include "moeloom/base/errors.hpp"
#include "moeloom/moe/dispatch/dispatch_plan.hpp"
#include "moeloom/moe/dispatch/row_buffer.hpp"

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
  RowBuffer rows;
  EXPECT_THROW(dispatch.dispatch(plan, Matrix(kTokens, kHidden), rows, std::nullopt), ShapeError);
  dispatch.prepare(rows, plan.rows(), kHidden);
  EXPECT_THROW(dispatch.combine(plan, rows, Matrix(kTokens, kHidden), Write::kReplace, std::nullopt),
               ShapeError);
}

}  // namespace moeloom::testing
