// The machine's own name, for messages that name it.
#pragma once

#include <string>

namespace moeloom {

/// As gethostname() gives it; "unknown" where it gives none.
std::string host_name();

}  // namespace moeloom
