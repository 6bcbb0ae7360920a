// One orientation of stacked weights, packed as the register tile reads it: a right side [depth, cols] a
// group.
//
// A group is cut into passes of kTileDepth, a pass into panels of kTileCols columns, each [depth, kTileCols]
// and contiguous: a product reads its part of the face from the first byte to the last.
#pragma once

#include "moeloom/kernels/grouped_matmul.hpp"

#include <algorithm>

#include "packed_tile.hpp"

namespace moeloom::packed {

/// Rows that multiply() takes at most.
inline constexpr Index kBlockRows = 96;

struct PanelRange {
  Index begin = 0;
  Index end = 0;
};

class Face {
 public:
  /// Memory for `groups` right sides [depth, cols]; kept when it is large enough.
  void reshape(Index groups, Index depth, Index cols) {
    depth_ = depth;
    cols_ = cols;
    storage_.reshape_uninitialised(groups, depth * panels() * kTileCols);
  }
  Index bytes() const { return storage_.rows() * storage_.cols() * static_cast<Index>(sizeof(float)); }
  Index depth() const { return depth_; }
  Index cols() const { return cols_; }
  Index panels() const { return ceil_div(cols_, kTileCols); }

  /// Row k of a panel, kTileCols numbers; the panel's next row of the same pass follows.
  float* row(Index group, Index panel, Index k) {
    const Index pass = k / kTileDepth * kTileDepth;
    const Index depth = std::min(kTileDepth, depth_ - pass);
    return storage_.row(group) + (pass * panels() + panel * depth + k - pass) * kTileCols;
  }
  const float* row(Index group, Index panel, Index k) const {
    return const_cast<Face*>(this)->row(group, panel, k);
  }

  /// These panels' columns of y [rows, cols] = x [rows, depth] times the group's right side, on this thread;
  /// rows <= kBlockRows.
  void multiply(Index group, PanelRange range, ConstMatrixView x, MatrixView y) const;

 private:
  Index depth_ = 0;
  Index cols_ = 0;
  Matrix storage_;  // a row a group
};

}  // namespace moeloom::packed
