// Rows that dispatch brings or combine fetches: memory of this process, or memory of the node that the other
// ranks write and read in place. And what travels beside them.
#pragma once

#include "comm/node_memory.hpp"
#include "moe/dispatch/trip_shape.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <span>
#include <vector>

namespace moeloom {

/// One number a slot on its way out is one a row where it lands.
struct ScalarsOut {
  std::span<const float> slots;  // [N]
  std::vector<float>& rows;      // [R]
};
struct ScalarsBack {
  std::span<const float> rows;  // [R]
  std::vector<float>& slots;    // [N]
};

/// Owns [rows, cols], contiguous, 64-byte aligned. Moves like a Matrix and is filled like one.
class RowBuffer {
 public:
  /// The least that a block in the node's memory becomes when it grows.
  static constexpr double kGrowth = 1.25;

  RowBuffer() = default;
  RowBuffer(Matrix rows) : own_(std::move(rows)), rows_(own_.rows()), cols_(own_.cols()) {}
  /// Without rows, which will lie in this rank's part of `memory`.
  explicit RowBuffer(std::shared_ptr<NodeMemory> memory) : memory_(std::move(memory)) {}

  Index rows() const { return rows_; }
  Index cols() const { return cols_; }
  MatrixView view() { return {data(), rows_, cols_}; }
  ConstMatrixView view() const { return {data(), rows_, cols_}; }
  operator MatrixView() { return view(); }
  operator ConstMatrixView() const { return view(); }
  /// Makes it [rows, cols], contents unspecified; memory is kept when it is large enough.
  void reshape_uninitialised(Index rows, Index cols);
  /// The same, in this rank's part of `memory`, to which it moves if it lay elsewhere.
  void reshape_in(const std::shared_ptr<NodeMemory>& memory, Index rows, Index cols);

  /// Floats that its memory holds.
  Index capacity() const {
    return memory_ ? block_.bytes() / static_cast<Index>(sizeof(float)) : own_.capacity();
  }

  /// The node's memory that the rows lie in; null: they are this process's own.
  const NodeMemory* memory() const { return memory_.get(); }
  /// Where every rank of it finds them; 0 before there were any.
  Index offset() const { return block_.offset(); }
  /// Of one that the rows of a trip come to.
  static double bytes_of(const TripShape& trip);

 private:
  float* data() const;

  Matrix own_;
  std::shared_ptr<NodeMemory> memory_;
  NodeBlock block_;
  Index rows_ = 0;
  Index cols_ = 0;
};

}  // namespace moeloom
