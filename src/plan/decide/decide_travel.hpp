// Of a run's decision what concerns gradients and weights of all ranks: when their sums and gathers travel.
#pragma once

#include "moeloom/plan/decide/decide.hpp"

namespace moeloom {

/// Pure. Throws ConfigError for what was asked for and cannot be.
TravelDecision decide_travel(const RunRequest& request, const Job& job);

}  // namespace moeloom
