// Names of options as the library writes them, as flags.
#pragma once

#include <string>
#include <string_view>

namespace moeloom {

/// "lower `lr`" -> "lower --lr".
std::string with_flag_names(std::string_view words);

}  // namespace moeloom
