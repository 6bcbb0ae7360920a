// The integer of every size, count and offset. It narrows to int only at MPI and BLAS, through a checked
// cast.
#pragma once

#include <cstdint>

namespace moeloom {

using Index = std::int64_t;

/// Blocks of `block` that cover `n` items.
constexpr Index ceil_div(Index n, Index block) {
  return (n + block - 1) / block;
}

}  // namespace moeloom
