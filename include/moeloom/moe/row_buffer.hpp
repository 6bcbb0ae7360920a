// Rows that dispatch brings or combine fetches: memory of this process, or memory of the node that the other
// ranks write and read in place.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <utility>

namespace moeloom {

/// Owns [rows, cols], contiguous. Moves like a Matrix and is filled like one.
class RowBuffer {
 public:
  RowBuffer() = default;
  RowBuffer(Matrix rows) : own_(std::move(rows)) {}

  Index rows() const { return own_.rows(); }
  Index cols() const { return own_.cols(); }
  MatrixView view() { return own_; }
  ConstMatrixView view() const { return own_; }
  operator MatrixView() { return view(); }
  operator ConstMatrixView() const { return view(); }
  /// Makes it [rows, cols], contents unspecified; memory is kept when it is large enough.
  void reshape_uninitialised(Index rows, Index cols) { own_.reshape_uninitialised(rows, cols); }

 private:
  Matrix own_;
};

}  // namespace moeloom
