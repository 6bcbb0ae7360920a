// The version that CMakeLists.txt gives the project; a test compares the two.
#pragma once

namespace moeloom {

inline constexpr const char* kVersion = "0.2.0";

}  // namespace moeloom
