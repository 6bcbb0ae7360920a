// What the report shows of restarts and of the time that trained.
#pragma once

#include "report/svg_chart.hpp"

#include <string>

#include "summary/run_time.hpp"

namespace moeloom {

/// "97.1 %"
std::string percent_text(double share);

/// For a chart over steps: numbered as in the table, each with its reason.
std::vector<Mark> restart_marks(const std::vector<Restart>& restarts);

/// Which restarts the table shows, where it does not show all; empty: all.
std::string restarts_note(const std::vector<Restart>& restarts);
/// A row a restart, the last ones where they are many. Empty for none.
std::string restarts_table(const std::vector<Restart>& restarts);

/// A row for each use of time, with its share. Empty for none.
std::string time_table(const std::optional<TimeUse>& time);

}  // namespace moeloom
