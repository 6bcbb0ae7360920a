// Of a run's decision whether its sums have the same bits on every mesh, and what that costs.
#pragma once

#include "moeloom/plan/decide/decide.hpp"

namespace moeloom {

/// `decision`: everything else. Throws ConfigError with all that adds numbers up in an order of its own.
ExactDecision decide_exact(const RunFacts& facts, const RunDecision& decision);

}  // namespace moeloom
