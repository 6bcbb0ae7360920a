// The sum of each token's rows in slot order, where the rows of its slots lie as they left.
#pragma once

#include "moeloom/base/parallel.hpp"
#include "moeloom/moe/dispatch/dispatch_plan.hpp"

#include "dispatch/row_sum.hpp"

namespace moeloom {

/// rows [N, D] by place of leaving -> tokens [T, D], written or added.
inline void sum_slots(const DispatchPlan& plan, ConstMatrixView rows, MatrixView tokens, Write mode) {
  constexpr Index kTokensPerTask = 64;
  parallel_blocks(plan.tokens, kTokensPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      const auto row_of = [&](Index k) { return rows.row(plan.slot_place[at(t * plan.top_k + k)]); };
      sum_rows(plan.top_k, rows.cols, row_of, tokens.row(t), mode);
    }
  });
}

}  // namespace moeloom
