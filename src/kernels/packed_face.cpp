#include "packed_face.hpp"

#include "transpose.hpp"

namespace moeloom::packed {
namespace {

/// Lines of the next panel that each of `tiles` tiles asks for every kUnroll of depth.
Index lines_ahead(Index depth, Index tiles) {
  return ceil_div(depth * kTileCols / kLineFloats, tiles * std::max<Index>(1, depth / kUnroll));
}

/// Eight columns of the first `count` <= 8 rows of x -> their place in a strip [depth, rows]. It writes eight
/// numbers a k, of which those beyond `count` belong to the next k: they must be written after it.
void pack_eight(ConstMatrixView x, Index column, Index count, float* strip, Index rows) {
  EightRows block;
  for (Index i = 0; i < kTransposed; ++i) block[i] = load8(x.row(std::min(i, count - 1)) + column);
  transpose(block);
  for (Index k = 0; k < kTransposed; ++k) store8(block[k], strip + (column + k) * rows);
}

/// x [rows, depth] -> strip [depth, rows]; up to eight numbers behind the strip are overwritten.
void pack_strip(ConstMatrixView x, float* strip) {
  Index column = 0;
  for (; column + kTransposed <= x.cols; column += kTransposed)
    for (Index first = (x.rows - 1) / kTransposed * kTransposed; first >= 0; first -= kTransposed)
      pack_eight(x.rows_from(first, x.rows - first), column, std::min(kTransposed, x.rows - first),
                 strip + first, x.rows);
  for (; column < x.cols; ++column)
    for (Index i = 0; i < x.rows; ++i) strip[column * x.rows + i] = x.row(i)[column];
}

}  // namespace

void Face::multiply(Index group, PanelRange range, ConstMatrixView x, MatrixView y) const {
  const Index tiles = ceil_div(x.rows, kTileRows);
  alignas(64) std::array<float, kBlockRows * kTileDepth + kTransposed> left;
  for (Index k = 0; k < depth_; k += kTileDepth) {
    const Index depth = std::min(kTileDepth, depth_ - k);
    for (Index i = 0; i < tiles; ++i) {
      const auto [begin, end] = even_part(x.rows, tiles, i);
      pack_strip(x.rows_from(begin, end - begin).cols_from(k, depth), left.data() + begin * depth);
    }
    const Index ahead_lines = lines_ahead(depth, tiles);
    const Index ahead_floats = ahead_lines * kLineFloats * (depth / kUnroll);
    for (Index p = range.begin; p < range.end; ++p) {
      const float* panel = row(group, p, k);
      for (Index i = 0; i < tiles; ++i) {
        const auto [begin, end] = even_part(x.rows, tiles, i);
        tile_function(end - begin)({.left = left.data() + begin * depth,
                                    .panel = panel,
                                    .depth = depth,
                                    .c = y.row(begin) + p * kTileCols,
                                    .c_stride = y.stride,
                                    .cols = std::min<Index>(kTileCols, cols_ - p * kTileCols),
                                    .mode = k == 0 ? Write::kReplace : Write::kAdd,
                                    .ahead = panel + depth * kTileCols + i * ahead_floats,
                                    .ahead_lines = ahead_lines});
      }
    }
  }
}

}  // namespace moeloom::packed
