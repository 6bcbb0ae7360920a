// A permutation that a seed and a name decide.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace moeloom {

/// Of 0 .. count - 1 (Fisher and Yates); another one for another seed or name.
std::vector<Index> shuffled(Index count, std::uint64_t seed, std::string_view name);

}  // namespace moeloom
