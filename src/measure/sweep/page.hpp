// report.html of a sweep: answers first, then the drawings, then every row.
#pragma once

#include "measure/sweep/row.hpp"
#include "report/page.hpp"

namespace moeloom {

/// The rows that were measured with `settings`, of every number of ranks; the page says how many others the
/// folder holds.
Report sweep_report(const std::vector<EpRow>& rows, const std::string& settings);

}  // namespace moeloom
