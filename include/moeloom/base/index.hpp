// The integer of every size, count and offset. It narrows to int only at MPI and BLAS, through a checked
// cast.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moeloom {

using Index = std::int64_t;

/// A place in a standard container: counts[at(rank)]. Not checked: i >= 0.
constexpr std::size_t at(Index i) {
  return static_cast<std::size_t>(i);
}

/// Blocks of `block` that cover `n` items, the last one perhaps not full. n >= 0, block >= 1.
constexpr Index ceil_div(Index n, Index block) {
  return (n + block - 1) / block;
}

}  // namespace moeloom
