#include "packed_face.hpp"

namespace moeloom::packed {
namespace {

/// Lines of the next panel that each of `tiles` tiles asks for every kUnroll of depth.
Index lines_ahead(Index depth, Index tiles) {
  return ceil_div(depth * kTileCols / kLineFloats, tiles * std::max<Index>(1, depth / kUnroll));
}

}  // namespace

template <typename Element>
void Face::multiply(Index group, PanelRange range, ConstMatrixView x, MatrixView y) const {
  const Index tiles = ceil_div(x.rows, kTileRows);
  alignas(64) std::array<float, kBlockRows * kLeftStride> left;
  for (Index k = 0; k < depth_; k += kTileDepth) {
    const Index depth = std::min(kTileDepth, depth_ - k);
    const Index number = k * Element::kNumbers;
    const Index numbers = std::min(depth * Element::kNumbers, numbers_ - number);
    for (Index i = 0; i < x.rows; ++i)
      Element::pack_along(x.row(i) + number, numbers, left.data() + i * kLeftStride);
    const Index ahead_lines = lines_ahead(depth, tiles);
    const Index ahead_floats = ahead_lines * kLineFloats * (depth / kUnroll);
    for (Index p = range.begin; p < range.end; ++p) {
      const float* panel = row(group, p, k);
      for (Index i = 0; i < tiles; ++i) {
        const auto [begin, end] = even_part(x.rows, tiles, i);
        tile_function<Element, Left::kRows>(end -
                                            begin)({.left = left.data() + begin * kLeftStride,
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
