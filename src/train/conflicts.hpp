// Of exact sums what cannot be had together with them: one list, for who decides on a job and for who makes
// its state. Which dispatcher can do what is another (plan/decide/dispatcher_ways.hpp).
#pragma once

#include "moeloom/job/job.hpp"

#include <string>
#include <vector>

namespace moeloom {

/// A sentence each; empty: all of it can be had. row_budget: MoeContext's.
std::vector<std::string> conflicts(const Job& job, Index row_budget);

}  // namespace moeloom
