// The sum of each token's rows in slot order, wherever the rows of its slots lie.
#pragma once

#include "moe/dispatch/dispatch_plan.hpp"
#include "moeloom/base/parallel.hpp"

#include "dispatch/row_sum.hpp"

namespace moeloom {

/// row_of(slot), asked of slots that have an expert -> tokens [T, D], written or added.
template <typename RowOf>
void sum_slots(const DispatchPlan& plan, Index tokens_per_task, RowOf row_of, MatrixView tokens, Write mode) {
  const bool every_slot = plan.every_slot_leaves();
  parallel_blocks(plan.tokens, tokens_per_task, [&](Index begin, Index end) {
    std::vector<Index> left;  // slots of a token, where some have no expert
    for (Index t = begin; t < end; ++t) {
      const Index first = t * plan.top_k;
      if (every_slot) {
        const auto row = [&](Index k) -> const float* { return row_of(first + k); };
        sum_rows(plan.top_k, tokens.cols, row, tokens.row(t), mode);
        continue;
      }
      left.clear();
      for (Index slot = first; slot < first + plan.top_k; ++slot)
        if (plan.leaves(slot)) left.push_back(slot);
      const auto row = [&](Index k) -> const float* { return row_of(left[at(k)]); };
      sum_rows(std::ssize(left), tokens.cols, row, tokens.row(t), mode);
    }
  });
}

/// rows [P, D] by place of leaving -> tokens [T, D], written or added.
inline void sum_slots(const DispatchPlan& plan, ConstMatrixView rows, MatrixView tokens, Write mode) {
  constexpr Index kTokensPerTask = 64;
  const auto row_of = [&](Index slot) { return rows.row(plan.slot_place[at(slot)]); };
  sum_slots(plan, kTokensPerTask, row_of, tokens, mode);
}

}  // namespace moeloom
