// Expert load over steps and layers, as a map of shades: a row a layer, a column a stretch of steps.
#pragma once

#include <string>

#include "run/metrics.hpp"

namespace moeloom {

/// Each cell is the mean over its steps of the fullest expert's rows over the average expert's. Empty if no
/// layer is sparse.
std::string svg_load_map(const std::vector<StepMetrics>& steps);

}  // namespace moeloom
