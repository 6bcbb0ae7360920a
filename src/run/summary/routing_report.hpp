// What the run's page shows of routing: maps over steps and layers, and the collapses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "record/metrics.hpp"
#include "summary/report.hpp"

namespace moeloom {

/// From its warning to its end.
struct Collapse {
  CollapseEvent begin;
  std::optional<Index> ended;  // the step; none: it had not when the metrics ended
};

/// In the order in which they began. One whose beginning is in another folder's metrics began at its `since`.
std::vector<Collapse> collapses_of(const std::vector<StepMetrics>& steps);

/// Maps whose figure was not measured, or was 0 throughout, are left out.
std::string routing_sections(const std::vector<StepMetrics>& steps, const ReportInfo& info);

}  // namespace moeloom
