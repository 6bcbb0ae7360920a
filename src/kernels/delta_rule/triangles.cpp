#include "delta_rule/triangles.hpp"

namespace moeloom::delta_rule {
namespace {

/// The part of a^T that row tile `first` multiplies rows [from, rows) with.
LeftSide upper_tile(ConstMatrixView a, Index first, Index from) {
  return {a.row(from) + first, 1, a.stride};
}

/// to += factor * from, both one row of a panel.
void add_scaled(float factor, const float* from, float* to) {
  for (Index lane = 0; lane < kPanelColumns; lane += kLanes)
    store(multiply_add(factor, load(from + lane), load(to + lane)), to + lane);
}

template <typename Target>
void multiply_upper(ConstMatrixView a, Panels b, Target c, Write mode) {
  for (Index first = 0; first < c.cols; first += kPanelColumns)
    for (Index i = 0; i < a.rows; i += kTileRows)
      multiply(upper_tile(a, i, i), a.rows - i, b.cols_after(first).rows_after(i),
               panel(c, first).rows_from(i, tile_rows(i, a.rows)), mode);
}

}  // namespace

void multiply_to_lower(ConstMatrixView a, Panels columns, MatrixView c) {
  for (Index i = 0; i < a.rows; i += kTileRows) {
    const Index rows = tile_rows(i, a.rows);
    multiply(as_is(a.rows_from(i, rows)), columns.depth, columns,
             c.rows_from(i, rows).cols_from(0, active_columns(i, a.rows)), Write::kReplace);
  }
}

void multiply_by_lower(ConstMatrixView a, Panels b, MatrixView c, Write mode) {
  for (Index first = 0; first < c.cols; first += kPanelColumns)
    for (Index i = 0; i < a.rows; i += kTileRows) {
      const Index rows = tile_rows(i, a.rows);
      multiply(as_is(a.rows_from(i, rows)), i + rows, b.cols_after(first), panel(c, first).rows_from(i, rows),
               mode);
    }
}

void multiply_by_upper(ConstMatrixView a, Panels b, MatrixView c, Write mode) {
  multiply_upper(a, b, c, mode);
}
void multiply_by_upper(ConstMatrixView a, Panels b, Panels c, Write mode) {
  multiply_upper(a, b, c, mode);
}

void substitute_down(ConstMatrixView a, Panels c) {
  for (Index first = 0; first < c.cols; first += kPanelColumns) {
    const Panels known = c.cols_after(first);
    for (Index i = 0; i < a.rows; i += kTileRows) {
      const MatrixView rows = panel(c, first).rows_from(i, tile_rows(i, a.rows));
      if (i > 0) multiply(as_is(a.rows_from(i, rows.rows)), i, known, rows, Write::kAdd);
      for (Index r = 1; r < rows.rows; ++r)
        for (Index s = 0; s < r; ++s) add_scaled(a(i + r, i + s), rows.row(s), rows.row(r));
    }
  }
}

/// A row adds what lies behind its step first and then what lies in it, so that bits depend on the step: it
/// is the smallest tile's on every processor.
void substitute_up(ConstMatrixView a, Panels c) {
  constexpr Index kStep = 6;
  static_assert(kStep <= kTileRows);
  const Index last = (a.rows - 1) / kStep * kStep;
  for (Index first = 0; first < c.cols; first += kPanelColumns)
    for (Index i = last; i >= 0; i -= kStep) {
      const MatrixView rows = panel(c, first).rows_from(i, std::min(kStep, a.rows - i));
      const Index end = i + rows.rows;
      if (end < a.rows)
        multiply(upper_tile(a, i, end), a.rows - end, c.cols_after(first).rows_after(end), rows, Write::kAdd);
      for (Index r = rows.rows - 2; r >= 0; --r)
        for (Index s = r + 1; s < rows.rows; ++s) add_scaled(a(i + s, i + r), rows.row(s), rows.row(r));
    }
}

}  // namespace moeloom::delta_rule
