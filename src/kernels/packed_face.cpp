#include "packed_face.hpp"

#include <algorithm>

#include "packed_tile.hpp"

namespace moeloom::packed {
namespace {

/// Columns that a task takes at most: the more, the less its copy of the rows weighs.
constexpr Index kBlockCols = 1024;

Index padded_to_panels(Index cols) {
  return ceil_div(cols, kTileCols) * kTileCols;
}

/// Lines of the next panel that each of `tiles` tiles asks for every kUnroll of depth.
Index lines_ahead(Index depth, Index tiles) {
  return ceil_div(depth * kTileCols / kLineFloats, tiles * std::max<Index>(1, depth / kUnroll));
}

}  // namespace

void Face::reshape(Index groups, Index depth, Index cols) {
  depth_ = depth;
  cols_ = cols;
  storage_.reshape_uninitialised(groups, depth * padded_to_panels(cols));
}

Index Face::column_blocks() const {
  return ceil_div(cols_, kBlockCols);
}

Face::Columns Face::columns_of(Index block) const {
  const auto [first, last] = even_part(ceil_div(cols_, kTileCols), column_blocks(), block);
  const Index begin = first * kTileCols;
  return {begin, std::min(last * kTileCols, cols_) - begin};
}

float* Face::block_data(Index group, const Columns& columns) {
  return storage_.row(group) + depth_ * columns.begin;
}

const float* Face::block_data(Index group, const Columns& columns) const {
  return storage_.row(group) + depth_ * columns.begin;
}

/// copy_panel(first k, depth, first column, columns, panel) for each panel in the order of memory; columns
/// that the matrix does not have are zeros.
template <typename Copy>
void Face::pack_panels(Index group, Index block, Copy copy_panel) {
  const Columns columns = columns_of(block);
  float* panel = block_data(group, columns);
  for (Index k = 0; k < depth_; k += kTileDepth) {
    const Index depth = std::min(kTileDepth, depth_ - k);
    for (Index j = 0; j < columns.count; j += kTileCols, panel += depth * kTileCols) {
      const Index count = std::min<Index>(kTileCols, columns.count - j);
      if (count < kTileCols) std::fill_n(panel, depth * kTileCols, 0.0f);
      copy_panel(k, depth, columns.begin + j, count, panel);
    }
  }
}

void Face::pack(Index group, Index block, ConstMatrixView master) {
  pack_panels(group, block, [&](Index k, Index depth, Index column, Index count, float* panel) {
    for (Index i = 0; i < depth; ++i) std::copy_n(master.row(k + i) + column, count, panel + i * kTileCols);
  });
}

void Face::pack_transposed(Index group, Index block, ConstMatrixView master) {
  pack_panels(group, block, [&](Index k, Index depth, Index column, Index count, float* panel) {
    for (Index j = 0; j < count; ++j) {
      const float* source = master.row(column + j) + k;
      for (Index i = 0; i < depth; ++i) panel[i * kTileCols + j] = source[i];
    }
  });
}

void Face::multiply(Index group, Index block, ConstMatrixView x, MatrixView y) const {
  const Columns columns = columns_of(block);
  const Index tiles = ceil_div(x.rows, kTileRows);
  const float* panel = block_data(group, columns);
  alignas(64) std::array<float, kBlockRows * kLeftStride> left;
  for (Index k = 0; k < depth_; k += kTileDepth) {
    const Index depth = std::min(kTileDepth, depth_ - k);
    for (Index i = 0; i < x.rows; ++i) std::copy_n(x.row(i) + k, depth, left.data() + i * kLeftStride);
    const Index ahead_lines = lines_ahead(depth, tiles);
    const Index ahead_floats = ahead_lines * kLineFloats * (depth / kUnroll);
    for (Index j = 0; j < columns.count; j += kTileCols, panel += depth * kTileCols) {
      for (Index i = 0; i < tiles; ++i) {
        const auto [begin, end] = even_part(x.rows, tiles, i);
        tile_function<Left::kRows>(end - begin)({.left = left.data() + begin * kLeftStride,
                                                 .panel = panel,
                                                 .depth = depth,
                                                 .c = y.row(begin) + columns.begin + j,
                                                 .c_stride = y.stride,
                                                 .cols = std::min<Index>(kTileCols, columns.count - j),
                                                 .mode = k == 0 ? Write::kReplace : Write::kAdd,
                                                 .ahead = panel + depth * kTileCols + i * ahead_floats,
                                                 .ahead_lines = ahead_lines});
      }
    }
  }
}

}  // namespace moeloom::packed
