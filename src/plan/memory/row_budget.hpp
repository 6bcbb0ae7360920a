// How many routed rows a ceiling of a rank's memory leaves room for, counted before anything is allocated.
//
// What a step needs however its rows come, and the rows of one slice, must fit; what is left over is for more
// rows at once. A layer to which routing brings more runs in slices (MoeContext::row_budget).
#pragma once

#include "plan/memory/memory_need.hpp"

#include <functional>

namespace moeloom {

/// Rows of a layer and micro-batch that may come to one rank.
struct RowRange {
  Index least = 0;     // of the smallest slice: one token of each rank of ep
  Index balanced = 0;  // each rank has as many
  Index most = 0;      // every token of all ranks of ep has all of its experts, or as many as can be, there
};
/// All zeros for a model without experts.
RowRange row_range(const ModelConfig& config, const Job& job);

/// What a rank holds in such a step where it takes at most `rows` of a layer at once, and as many come as
/// can.
MemoryNeed memory_of_rows(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                          bool packs, DType element, Index rows);

/// What a ceiling leaves.
struct RowRoom {
  double ceiling = 0;  // bytes
  RowRange range;
  Index rows = 0;     // the most at once; 0: as many as come, because range.most fit
  MemoryNeed memory;  // with so many; where not even range.least fit, with those

  bool fits() const { return memory.total() <= ceiling; }
};

/// The largest budget with which need(rows) is within the ceiling. need() must not fall as rows grow, but for
/// range.most, of which nothing is sliced.
RowRoom row_room(double ceiling, const RowRange& range, const std::function<MemoryNeed(Index rows)>& need);

}  // namespace moeloom
