// Where a step's time goes: one stacked bar and its table.
#pragma once

#include <string>

#include "run/metrics.hpp"

namespace moeloom {

/// Means over all steps, longest phase first; the short ones together. Empty if no phase was measured.
std::string svg_phase_bar(const std::vector<StepMetrics>& steps);

}  // namespace moeloom
