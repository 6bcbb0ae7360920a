#include "tile/packed_face.hpp"

namespace moeloom::packed {
namespace {

/// What each of `tiles` tiles asks for of the next panel.
Ahead ahead_of(const float* next, Index depth, Index tiles, Index tile) {
  const Index steps = std::max<Index>(1, depth / kUnroll);
  const Index lines = ceil_div(depth, tiles * steps);
  return {.from = next + tile * steps * lines * kTileCols,
          .lines = lines,
          .stride = kTileCols,
          .advance = lines * kTileCols,
          .times = steps};
}

}  // namespace

template <typename Element>
void Face::multiply(Index group, Stretch range, ConstRows x, MatrixView y,
                    FaceWorkspace<Element>& left) const {
  [[maybe_unused]] const Registers<Element> registers;
  left.take(x);
  for (Index k = 0; k < depth_; k += kTileDepth) {
    left.pack(k);
    for (Index p = range.begin; p < range.end; ++p) {
      const float* panel = row(group, p, k);
      for (Index i = 0; i < left.strips(); ++i) {
        const auto [begin, end] = left.rows(i);
        multiply_strip<Element>(end - begin, {.left = left.words(i),
                                              .panel = panel,
                                              .depth = left.depth(),
                                              .c = y.row(begin) + p * kTileCols,
                                              .c_stride = y.stride,
                                              .cols = std::min<Index>(kTileCols, cols_ - p * kTileCols),
                                              .mode = k == 0 ? Write::kReplace : Write::kAdd,
                                              .ahead = ahead_of(panel + left.depth() * kTileCols,
                                                                left.depth(), left.strips(), i)});
      }
    }
  }
}

template void Face::multiply<Fp32>(Index, Stretch, ConstRows, MatrixView, FaceWorkspace<Fp32>&) const;
template void Face::multiply<Bf16>(Index, Stretch, ConstRows, MatrixView, FaceWorkspace<Bf16>&) const;
template void Face::multiply<Bf16Matrix>(Index, Stretch, ConstRows, MatrixView,
                                         FaceWorkspace<Bf16Matrix>&) const;

}  // namespace moeloom::packed
