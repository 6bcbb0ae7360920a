#include "packed_face.hpp"

#include "transpose.hpp"

namespace moeloom::packed {
namespace {

/// Lines of the next panel that each of `tiles` tiles asks for every kUnroll of depth.
Index lines_ahead(Index depth, Index tiles) {
  return ceil_div(depth * kTileCols / kLineFloats, tiles * std::max<Index>(1, depth / kUnroll));
}

/// x [rows, numbers] -> strip [depth, rows] of words; up to eight words behind the strip are overwritten.
/// Eight words of a k are written at once, and those that belong to the next k are written again after it.
template <typename Element>
void pack_strip(ConstMatrixView x, float* strip) {
  Index k = 0;
  for (; (k + kTransposed) * Element::kNumbers <= x.cols; k += kTransposed)
    for (Index first = (x.rows - 1) / kTransposed * kTransposed; first >= 0; first -= kTransposed) {
      EightRows block;
      for (Index i = 0; i < kTransposed; ++i)
        block[i] = Element::words_along(x.row(std::min(first + i, x.rows - 1)) + k * Element::kNumbers);
      transpose(block);
      for (Index i = 0; i < kTransposed; ++i) store8(block[i], strip + (k + i) * x.rows + first);
    }
  for (; k * Element::kNumbers < x.cols; ++k)
    for (Index i = 0; i < x.rows; ++i) {
      const Index number = k * Element::kNumbers;
      const float next = number + 1 < x.cols ? x.row(i)[number + 1] : 0.0f;
      strip[k * x.rows + i] = Element::word(x.row(i)[number], next);
    }
}

}  // namespace

template <typename Element>
void Face::multiply(Index group, PanelRange range, ConstMatrixView x, MatrixView y) const {
  const Index tiles = ceil_div(x.rows, kTileRows);
  alignas(64) std::array<float, kBlockRows * kTileDepth + kTransposed> left;
  for (Index k = 0; k < depth_; k += kTileDepth) {
    const Index depth = std::min(kTileDepth, depth_ - k);
    const Index number = k * Element::kNumbers;
    const Index numbers = std::min(depth * Element::kNumbers, numbers_ - number);
    for (Index i = 0; i < tiles; ++i) {
      const auto [begin, end] = even_part(x.rows, tiles, i);
      pack_strip<Element>(x.rows_from(begin, end - begin).cols_from(number, numbers),
                          left.data() + begin * depth);
    }
    const Index ahead_lines = lines_ahead(depth, tiles);
    const Index ahead_floats = ahead_lines * kLineFloats * (depth / kUnroll);
    for (Index p = range.begin; p < range.end; ++p) {
      const float* panel = row(group, p, k);
      for (Index i = 0; i < tiles; ++i) {
        const auto [begin, end] = even_part(x.rows, tiles, i);
        tile_function<Element>(end - begin)({.left = left.data() + begin * depth,
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

template void Face::multiply<Fp32>(Index, PanelRange, ConstMatrixView, MatrixView) const;
template void Face::multiply<Bf16>(Index, PanelRange, ConstMatrixView, MatrixView) const;

}  // namespace moeloom::packed
