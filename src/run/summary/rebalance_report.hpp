// What the run's page shows of uneven rows and replicas of experts, layer by layer.
#pragma once

#include "report/page.hpp"

#include <vector>

#include "record/metrics.hpp"

namespace moeloom {

/// Means of the steps with --rebalance; empty where there are none.
Section rebalance_section(const std::vector<StepMetrics>& steps);

}  // namespace moeloom
