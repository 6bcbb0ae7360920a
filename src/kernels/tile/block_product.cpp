#include "kernels/tile/block_product.hpp"

#include <algorithm>

#include "tile/transpose.hpp"

namespace moeloom::block {
namespace {

constexpr Index kLineFloats = 16;

/// The lines in which the next tile's rows have depths [k, k + kLineFloats): short pieces that no hardware
/// foresees, a row each or, where rows lie side by side, a depth each.
template <Index Rows>
[[gnu::always_inline]] inline void ask_for_next(LeftSide a, Index k) {
  const float* next = a.data + Rows * a.row_stride + k * a.depth_stride;
  if (a.depth_stride == 1) {
    for (Index i = 0; i < Rows; ++i) __builtin_prefetch(next + i * a.row_stride);
  } else {
    for (Index i = 0; i < kLineFloats; ++i) __builtin_prefetch(next + i * a.depth_stride);
  }
}

/// Rows x kPanelColumns elements of c, held in registers over the whole depth: every loop over rows must be
/// unrolled, or the compiler keeps the sums in memory. Inlined, because handing LeftSide over through memory
/// costs as much as four steps of the depth.
template <Index Rows, Write Mode>
[[gnu::always_inline]] inline void tile(LeftSide a, Index depth, const float* panel, float* c,
                                        Index c_stride) {
  Lanes first[Rows] = {};
  Lanes second[Rows] = {};
  if constexpr (Mode == Write::kAdd) {
#pragma GCC unroll 16
    for (Index i = 0; i < Rows; ++i) {
      first[i] = load(c + i * c_stride);
      second[i] = load(c + i * c_stride + kLanes);
    }
  }
  const auto add_products = [&](Index k) {
    const Lanes first_right = load(panel + k * kPanelColumns);
    const Lanes second_right = load(panel + k * kPanelColumns + kLanes);
    const float* left = a.data + k * a.depth_stride;
#pragma GCC unroll 16
    for (Index i = 0; i < Rows; ++i) {
      first[i] = multiply_add(left[i * a.row_stride], first_right, first[i]);
      second[i] = multiply_add(left[i * a.row_stride], second_right, second[i]);
    }
  };
  Index k = 0;
  for (; k + kLineFloats <= depth; k += kLineFloats) {
    ask_for_next<Rows>(a, k);
#pragma GCC unroll 8
    for (Index step = 0; step < kLineFloats; ++step) add_products(k + step);
  }
  for (; k < depth; ++k) add_products(k);
#pragma GCC unroll 16
  for (Index i = 0; i < Rows; ++i) {
    store(first[i], c + i * c_stride);
    store(second[i], c + i * c_stride + kLanes);
  }
}

/// tile<rows> for a number known only at run time, at most Rows.
template <Index Rows, Write Mode>
void last_tile(Index rows, LeftSide a, Index depth, const float* panel, float* c, Index c_stride) {
  if (rows == Rows) return tile<Rows, Mode>(a, depth, panel, c, c_stride);
  if constexpr (Rows > 1) last_tile<Rows - 1, Mode>(rows, a, depth, panel, c, c_stride);
}

template <Write Mode>
void multiply_panel(LeftSide a, Index depth, const float* panel, MatrixView c) {
  Index i = 0;
  for (; i + kTileRows <= c.rows; i += kTileRows) {
    tile<kTileRows, Mode>(a, depth, panel, c.row(i), c.stride);
    a.data += kTileRows * a.row_stride;
  }
  if (i < c.rows) last_tile<kTileRows - 1, Mode>(c.rows - i, a, depth, panel, c.row(i), c.stride);
}

/// A whole row: a copy of a length that is not known is a call.
void copy_panel_row(const float* from, float scale, float* to) {
  store(scale * load(from), to);
  store(scale * load(from + kLanes), to + kLanes);
}

/// At most eight rows of a source -> as many columns of a panel.
void transpose_rows(ConstMatrixView source, float scale, float* panel) {
  Index k = 0;
  if (source.rows == kTransposed)
    for (; k + kTransposed <= source.cols; k += kTransposed) {
      EightRows block;
      for (Index i = 0; i < kTransposed; ++i) block[i] = load8(source.row(i) + k);
      transpose(block);
      for (Index i = 0; i < kTransposed; ++i) store8(scale * block[i], panel + (k + i) * kPanelColumns);
    }
  for (; k < source.cols; ++k)
    for (Index i = 0; i < source.rows; ++i) panel[k * kPanelColumns + i] = scale * source.row(i)[k];
}

}  // namespace

void pack(ConstMatrixView source, float scale, Panels panels) {
  for (Index first = 0; first < source.cols; first += kPanelColumns) {
    float* panel = panels.data + first * panels.depth;
    const Index cols = std::min(kPanelColumns, source.cols - first);
    for (Index k = 0; k < source.rows; ++k) {
      const float* from = source.row(k) + first;
      float* to = panel + k * kPanelColumns;
      if (cols == kPanelColumns) {
        copy_panel_row(from, scale, to);
        continue;
      }
      for (Index j = 0; j < cols; ++j) to[j] = scale * from[j];
      std::fill(to + cols, to + kPanelColumns, 0.0f);
    }
  }
}

void pack_transposed(ConstMatrixView source, float scale, Panels panels) {
  for (Index first = 0; first < source.rows; first += kPanelColumns) {
    float* panel = panels.data + first * panels.depth;
    const Index cols = std::min(kPanelColumns, source.rows - first);
    if (cols < kPanelColumns) std::fill_n(panel, panels.panel_floats(), 0.0f);
    for (Index j = 0; j < cols; j += kTransposed)
      transpose_rows(source.rows_from(first + j, std::min(kTransposed, cols - j)), scale, panel + j);
  }
}

void unpack(Panels source, MatrixView target) {
  for (Index first = 0; first < target.cols; first += kPanelColumns) {
    const float* panel = source.data + first * source.depth;
    const Index cols = std::min(kPanelColumns, target.cols - first);
    for (Index k = 0; k < source.depth; ++k) {
      const float* from = panel + k * kPanelColumns;
      float* to = target.row(k) + first;
      if (cols == kPanelColumns) {
        copy_panel_row(from, 1.0f, to);
      } else {
        std::copy_n(from, cols, to);
      }
    }
  }
}

void multiply(LeftSide a, Index depth, Panels b, MatrixView c, Write mode) {
  for (Index first = 0; first < c.cols; first += kPanelColumns) {
    const float* panel = b.data + first * b.depth;
    const MatrixView target = c.cols_from(first, kPanelColumns);
    if (mode == Write::kAdd) {
      multiply_panel<Write::kAdd>(a, depth, panel, target);
    } else {
      multiply_panel<Write::kReplace>(a, depth, panel, target);
    }
  }
}

void multiply(LeftSide a, Index depth, Panels b, Panels c, Write mode) {
  for (Index first = 0; first < c.cols; first += kPanelColumns)
    multiply(a, depth, b.cols_after(first), panel(c, first), mode);
}

}  // namespace moeloom::block
