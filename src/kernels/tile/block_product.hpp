// Products of the blocks of attention and of the gated delta rule: a few dozen rows against a packed matrix,
// small enough to stay in cache.
//
// A general GEMM copies both operands before it starts, which costs as much as the product itself where one
// side is a head's 32 columns. Here the right side is packed once and used by many blocks of rows, or lies in
// panels all the time, as a state does; the left side is read where it lies, one number at a time, in either
// orientation.
#pragma once

#include "moeloom/tensor/gemm.hpp"
#include "moeloom/tensor/matrix.hpp"
#include "tensor/lanes.hpp"

namespace moeloom::block {

// Two vectors a panel and as many rows as leave registers for the right side and one number of the left: 32
// registers with AVX-512 and on AArch64, else 16.
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr Index kTileRows = 12;
#else
inline constexpr Index kTileRows = 6;
#endif
inline constexpr Index kPanelColumns = 2 * kLanes;

constexpr Index padded_columns(Index cols) {
  return ceil_div(cols, kPanelColumns) * kPanelColumns;
}

/// [depth, cols] in panels of kPanelColumns columns, one after the other, the last filled up with zeros.
struct Panels {
  float* data = nullptr;
  Index depth = 0;
  Index cols = 0;

  static constexpr Index floats(Index depth, Index cols) { return depth * padded_columns(cols); }
  Index panel_floats() const { return depth * kPanelColumns; }
  /// Without the rows or the columns before `begin`; of columns, a multiple of kPanelColumns.
  Panels rows_after(Index begin) const { return {data + begin * kPanelColumns, depth, cols}; }
  Panels cols_after(Index begin) const { return {data + begin * depth, depth, cols - begin}; }
};

/// panels = scale * source, source [depth, cols].
void pack(ConstMatrixView source, float scale, Panels panels);
/// panels = scale * source^T, source [cols, depth].
void pack_transposed(ConstMatrixView source, float scale, Panels panels);

/// target = source, source.depth rows.
void unpack(Panels source, MatrixView target);

/// The left side: element (i, k) is data[i * row_stride + k * depth_stride].
struct LeftSide {
  const float* data = nullptr;
  Index row_stride = 0;
  Index depth_stride = 0;
};
inline LeftSide as_is(ConstMatrixView a) {
  return {a.data, a.stride, 1};
}
inline LeftSide transposed(ConstMatrixView a) {
  return {a.data, 1, a.stride};
}

/// c (=, +=) a b over the next `depth` rows of the panels and the first c.cols columns; c.cols is a multiple
/// of kPanelColumns. Each element adds its products in the order of depth.
void multiply(LeftSide a, Index depth, Panels b, MatrixView c, Write mode);
/// The same into all c.depth rows of panels.
void multiply(LeftSide a, Index depth, Panels b, Panels c, Write mode);

/// The columns from `first` on, a multiple of kPanelColumns, that one panel holds.
inline MatrixView panel(MatrixView c, Index first) {
  return c.cols_from(first, kPanelColumns);
}
inline MatrixView panel(Panels c, Index first) {
  return {c.data + first * c.depth, c.depth, kPanelColumns};
}

/// Hands out pieces of a task's memory, each on a cache line of its own.
class Pieces {
 public:
  static constexpr Index rounded(Index floats) { return ceil_div(floats, 16) * 16; }

  explicit Pieces(float* memory) : next_(memory) {}
  Panels panels(Index depth, Index cols) { return {take(Panels::floats(depth, cols)), depth, cols}; }
  MatrixView matrix(Index rows, Index cols) { return {take(rows * cols), rows, cols}; }

 private:
  float* take(Index floats) {
    float* piece = next_;
    next_ += rounded(floats);
    return piece;
  }

  float* next_;
};

}  // namespace moeloom::block
