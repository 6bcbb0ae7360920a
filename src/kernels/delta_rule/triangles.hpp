// Products with triangular matrices of a chunk, and the systems that they solve. What is zero is multiplied
// only where a tile of rows reaches beyond the diagonal.
//
// A lower triangular matrix has zeros above its diagonal in all of active_columns(row) columns.
#pragma once

#include "kernels/tile/block_product.hpp"

#include <algorithm>

namespace moeloom::delta_rule {

using namespace block;

/// Rows of the tile that begins with row `first` of `rows`.
inline Index tile_rows(Index first, Index rows) {
  return std::min<Index>(kTileRows, rows - first);
}
/// Columns that products write, and read, of a row of a lower triangle: whole panels up to the end of its
/// tile.
inline Index active_columns(Index row, Index rows) {
  const Index first = row / kTileRows * kTileRows;
  return padded_columns(first + tile_rows(first, rows));
}

/// The lower triangle of c [rows, rows] = a b^T, a [rows, depth], columns = b^T in panels.
void multiply_to_lower(ConstMatrixView a, Panels columns, MatrixView c);

/// c (=, +=) a b, a [rows, rows] lower triangular.
void multiply_by_lower(ConstMatrixView a, Panels b, MatrixView c, Write mode);
/// c (=, +=) a^T b.
void multiply_by_upper(ConstMatrixView a, Panels b, MatrixView c, Write mode);
void multiply_by_upper(ConstMatrixView a, Panels b, Panels c, Write mode);

/// x of x = c + a x, a strictly lower triangular, written over c.
void substitute_down(ConstMatrixView a, Panels c);
/// x of x = c + a^T x.
void substitute_up(ConstMatrixView a, Panels c);

}  // namespace moeloom::delta_rule
