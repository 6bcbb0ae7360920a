// One orientation of stacked weights, packed as the register tile reads it: a right side [depth, cols] a
// group.
//
// A group's columns are cut into blocks, a block into passes of kTileDepth, a pass into panels of kTileCols
// columns, each [depth, kTileCols] and contiguous: a product reads the face from its first byte to its last.
#pragma once

#include "moeloom/kernels/grouped_matmul.hpp"

namespace moeloom::packed {

/// Rows that multiply() takes at most.
inline constexpr Index kBlockRows = 96;

class Face {
 public:
  /// Memory for `groups` right sides [depth, cols]; kept when it is large enough.
  void reshape(Index groups, Index depth, Index cols);
  Index column_blocks() const;
  Index bytes() const { return storage_.rows() * storage_.cols() * static_cast<Index>(sizeof(float)); }
  Index depth() const { return depth_; }
  Index cols() const { return cols_; }

  /// Writes one column block of one group. `master` is the right side itself [depth, cols].
  void pack(Index group, Index block, ConstMatrixView master);
  /// `master` is its transpose [cols, depth].
  void pack_transposed(Index group, Index block, ConstMatrixView master);

  /// One column block of y [rows, cols] = x [rows, depth] times the group's right side, on this
  /// thread; rows <= kBlockRows.
  void multiply(Index group, Index block, ConstMatrixView x, MatrixView y) const;

 private:
  struct Columns {
    Index begin = 0;
    Index count = 0;
  };
  Columns columns_of(Index block) const;
  float* block_data(Index group, const Columns& columns);
  const float* block_data(Index group, const Columns& columns) const;
  template <typename Copy>
  void pack_panels(Index group, Index block, Copy copy_panel);

  Index depth_ = 0;
  Index cols_ = 0;
  Matrix storage_;  // a row a group
};

}  // namespace moeloom::packed
