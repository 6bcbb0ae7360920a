// What a mixer without keys keeps of one sequence, of a size that does not grow with it: the last inputs of a
// causal convolution and the state of a recurrence.
#pragma once

#include "moeloom/tensor/matrix.hpp"

namespace moeloom {

/// It stands behind its last position alone: what came before cannot be taken back, so that a sequence goes
/// on there or begins anew.
class RecurrentState {
 public:
  /// convolution [1, inputs], recurrence [rows, cols]; zeros.
  RecurrentState(Index inputs, Index rows, Index cols) : convolution_(1, inputs), recurrence_(rows, cols) {}

  MatrixView convolution() { return convolution_; }
  MatrixView recurrence() { return recurrence_; }
  /// Positions that it has seen.
  Index end() const { return end_; }
  /// Of memory.
  Index bytes() const;

  /// Whether a sequence may go on behind its first `length` positions.
  bool serves(Index length) const { return length == 0 || length == end_; }
  /// As KeyValueCache's, of which it needs no capacity. Throws ShapeError unless serves(length).
  void restart(Index length, Index capacity);
  /// Before the positions from `first` on, of which there are `count`: zeros for a sequence that begins.
  /// Throws ShapeError unless serves(first).
  void advance(Index first, Index count);

 private:
  Matrix convolution_;
  Matrix recurrence_;
  Index end_ = 0;
};

}  // namespace moeloom
