#pragma once

#include <string>

namespace moeloom {

/// "45 s", "2:10", "3:04:05".
std::string duration_text(double seconds);

}  // namespace moeloom
