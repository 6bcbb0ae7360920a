// The version of the library that these headers belong to.
#pragma once

namespace moeloom {

/// major.minor.patch, as CMake's find_package and pkg-config give it.
inline constexpr const char* kVersion = "0.2.0";

}  // namespace moeloom
