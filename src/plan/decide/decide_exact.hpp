// Of a run's decision whether its sums have the same bits on every mesh, and what that costs.
#pragma once

#include "moeloom/base/violations.hpp"
#include "plan/decide/decide.hpp"

namespace moeloom {

/// Kernels that are not applied and that exact sums need.
void check_exact(const RunFacts& facts, const RunDecision& decision, Violations& violations);

/// What they cost; empty: sums are not exact. `decision`: everything else.
std::string exact_cost(const RunFacts& facts, const RunDecision& decision);

}  // namespace moeloom
