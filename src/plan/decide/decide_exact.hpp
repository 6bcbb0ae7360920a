// Of a run's decision whether its sums have the same bits on every mesh, and what that costs.
#pragma once

#include "moeloom/plan/decide/decide.hpp"

namespace moeloom {

/// What it costs; empty: sums are not exact. `decision`: everything else. Throws ConfigError with all that
/// adds numbers up in an order of its own.
std::string decide_exact(const RunFacts& facts, const RunDecision& decision);

}  // namespace moeloom
