// What the report shows of restarts and of the time that trained.
#pragma once

#include "report/page.hpp"

#include <string>

#include "summary/run_time.hpp"

namespace moeloom {

/// "97.1 %"
std::string percent_text(double share);

/// A row a restart, numbered as on the lines; the last ones where they are many. Empty for none.
Section restarts_section(const std::vector<Restart>& restarts);

/// A row for each use of time, with its share. Empty for none.
Section time_section(const std::optional<TimeUse>& time);

}  // namespace moeloom
