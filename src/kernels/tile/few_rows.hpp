// y = x w^T for few rows, reading the master where it lies.
//
// Packing a weight's panel costs as much as some ten rows' multiplications. Here the sides change places: a
// few rows of the master are the tile's single numbers, read along their lines and never copied, and the few
// rows of x are packed as its vectors. Each sum is still one chain in the order of depth, pass by pass, so
// the bits are those of every other path.
#pragma once

#include "moeloom/tensor/gemm.hpp"

#include <array>

#include "tile/packed_tile.hpp"

namespace moeloom::packed {

/// Above it packing panels is faster.
inline constexpr Index kFewRows = 48;

/// Whether multiply_few_rows() beats packing panels. Measured 1.1 to 1.25x at 8, 16 and 32 rows, less than 1
/// at 20, where 12 of the second panel's 16 columns belong to no row.
inline bool few_rows_pay(Index rows) {
  return rows <= kTileCols || (rows <= kFewRows && (rows - 1) % kTileCols >= kLanes - 1);
}

/// A thread's memory.
struct FewRowsWorkspace {
  static constexpr Index kDepth = 4 * kTileDepth;
  static constexpr Index kMostTileRows = std::max(8, kTileRows);

  /// x in panels of kTileCols rows, [depth, cols] each.
  alignas(64) std::array<float, (kFewRows + kTileCols) * kDepth + kTransposed> x;
  /// The sums of one tile a panel.
  alignas(64) std::array<float, kMostTileRows*(kFewRows + kTileCols)> sums;
};

/// y [rows, out] (+)= x [rows, in] w^T, w [out, in], 1 <= rows <= kFewRows, on this thread.
void multiply_few_rows(ConstMatrixView w, ConstMatrixView x, MatrixView y, Write mode,
                       FewRowsWorkspace& work);

}  // namespace moeloom::packed
