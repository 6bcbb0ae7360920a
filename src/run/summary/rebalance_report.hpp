// What the run's page shows of uneven rows and replicas of experts, layer by layer.
#pragma once

#include <string>
#include <vector>

#include "record/metrics.hpp"

namespace moeloom {

/// Means of the steps with --rebalance; empty where there are none.
std::string rebalance_section(const std::vector<StepMetrics>& steps);

}  // namespace moeloom
