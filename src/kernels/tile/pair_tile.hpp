// The tile of CPUs that multiply pairs of bf16 (AVX512_BF16), compiled for itself: with these instructions,
// in a library that also starts on CPUs with AVX-512 alone. So nothing of it is inline or in a template that
// others use, and whoever calls it has asked multiplies_pairs().
#pragma once

#include "tile/packed_tile.hpp"

namespace moeloom::packed {

/// Whether the compiler knew the instructions.
bool built_with_pairs();
bool cpu_multiplies_pairs();
/// Whether pair_tile() may be called.
bool multiplies_pairs();

/// multiply_tile<Bf16> for 1 <= rows <= kTileRows and 1 <= cols <= kTileCols.
TileFunction pair_tile(Index rows, Index cols);

}  // namespace moeloom::packed
