// The collapses of routers that a run's metrics tell of.
#pragma once

#include "report/page.hpp"

#include <optional>
#include <vector>

#include "record/metrics.hpp"

namespace moeloom {

/// From its warning to its end.
struct Collapse {
  CollapseEvent begin;
  std::optional<Index> ended;  // the step; none: it had not when the metrics ended
};

/// In the order in which they began. One whose beginning is in another folder's metrics began at its `since`.
std::vector<Collapse> collapses_of(const std::vector<StepMetrics>& steps);

/// A row a collapse. Empty for none.
Section collapse_section(const std::vector<StepMetrics>& steps);

}  // namespace moeloom
