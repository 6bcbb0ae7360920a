#include "attention_product.hpp"

#include <algorithm>
#include <cstring>

namespace moeloom::attention {
namespace {

using Vector = float __attribute__((vector_size(kLanes * sizeof(float))));

void load(Vector& to, const float* from) {
  std::memcpy(&to, from, sizeof to);
}

void store(float* to, const Vector& from) {
  std::memcpy(to, &from, sizeof from);
}

/// Rows x kPanelColumns elements of c, held in registers over the whole depth: every loop over rows must be
/// unrolled, or the compiler keeps the sums in memory.
template <Index Rows>
void tile(LeftSide a, Index depth, const float* panel, float* c, Index c_stride, Write mode) {
  Vector left_sums[Rows] = {};
  Vector right_sums[Rows] = {};
  if (mode == Write::kAdd) {
#pragma GCC unroll 16
    for (Index i = 0; i < Rows; ++i) {
      load(left_sums[i], c + i * c_stride);
      load(right_sums[i], c + i * c_stride + kLanes);
    }
  }
  for (Index k = 0; k < depth; ++k) {
    Vector left;
    Vector right;
    load(left, panel + k * kPanelColumns);
    load(right, panel + k * kPanelColumns + kLanes);
    const float* factors = a.data + k * a.depth_stride;
#pragma GCC unroll 16
    for (Index i = 0; i < Rows; ++i) {
      const float factor = factors[i * a.row_stride];
      left_sums[i] += factor * left;
      right_sums[i] += factor * right;
    }
  }
#pragma GCC unroll 16
  for (Index i = 0; i < Rows; ++i) {
    store(c + i * c_stride, left_sums[i]);
    store(c + i * c_stride + kLanes, right_sums[i]);
  }
}

/// tile<rows> for a number known only at run time, at most Rows.
template <Index Rows>
void tile_of(Index rows, LeftSide a, Index depth, const float* panel, float* c, Index c_stride, Write mode) {
  if (rows == Rows) return tile<Rows>(a, depth, panel, c, c_stride, mode);
  if constexpr (Rows > 1) tile_of<Rows - 1>(rows, a, depth, panel, c, c_stride, mode);
}

}  // namespace

void pack(ConstMatrixView source, float scale, Panels panels) {
  for (Index first = 0; first < source.cols; first += kPanelColumns) {
    float* panel = panels.data + first * panels.depth;
    const Index cols = std::min(kPanelColumns, source.cols - first);
    for (Index k = 0; k < source.rows; ++k) {
      const float* from = source.row(k) + first;
      float* to = panel + k * kPanelColumns;
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
    for (Index j = 0; j < cols; ++j) {
      const float* from = source.row(first + j);
      for (Index k = 0; k < source.cols; ++k) panel[k * kPanelColumns + j] = scale * from[k];
    }
  }
}

void multiply(LeftSide a, Index depth, Panels b, MatrixView c, Write mode) {
  for (Index first = 0; first < c.cols; first += kPanelColumns) {
    const float* panel = b.data + first * b.depth;
    for (Index i = 0; i < c.rows; i += kTileRows) {
      const LeftSide rows{a.data + i * a.row_stride, a.row_stride, a.depth_stride};
      tile_of<kTileRows>(std::min(kTileRows, c.rows - i), rows, depth, panel, c.row(i) + first, c.stride,
                         mode);
    }
  }
}

}  // namespace moeloom::attention
