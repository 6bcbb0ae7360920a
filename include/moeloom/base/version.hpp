// The version of the library that these headers belong to.
#pragma once

#include <string_view>

namespace moeloom {

/// major.minor.patch, as CMake's find_package and pkg-config give it.
inline constexpr const char* kVersion = "0.2.0";

/// Which processors this library was compiled for: "native" (that of its builder), "x86-64-v3" and so on, or
/// a family ("x86-64", "aarch64"). Of several installed ones the loader picks.
std::string_view library_level();

}  // namespace moeloom
