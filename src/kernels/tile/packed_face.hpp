// One orientation of stacked weights, packed as the register tile reads it: a right side [depth, cols] a
// group, the depth in words of Element.
//
// A group is cut into passes of kTileDepth, a pass into panels of kTileCols columns, each [depth, kTileCols]
// and contiguous: a product reads its part of the face from the first byte to the last.
#pragma once

#include "moeloom/base/stretch.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <algorithm>

#include "tile/left_side.hpp"

namespace moeloom::packed {

/// Rows that multiply() takes at most: they stay in the second-level cache. Matrices are so fast that a panel
/// must be read from memory for many of them.
template <typename Element>
inline constexpr Index kBlockRows = kOfMatrices<Element> ? 384 : 96;
/// What a thread multiplies with; too much for a stack that somebody has made small.
template <typename Element>
using FaceWorkspace = LeftSide<Element, kBlockRows<Element>>;

class Face {
 public:
  /// Memory for `groups` right sides [numbers, cols], so many numbers a word; kept when it is large enough.
  void reshape(Index groups, Index numbers, Index cols, Index numbers_a_word) {
    numbers_ = numbers;
    depth_ = ceil_div(numbers, numbers_a_word);
    cols_ = cols;
    storage_.reshape_uninitialised(groups, depth_ * panels() * kTileCols);
  }
  Index bytes() const { return storage_.rows() * storage_.cols() * static_cast<Index>(sizeof(float)); }
  Index numbers() const { return numbers_; }
  Index cols() const { return cols_; }
  Index panels() const { return ceil_div(cols_, kTileCols); }

  /// Row k of a panel, kTileCols words; the panel's next row of the same pass follows.
  float* row(Index group, Index panel, Index k) {
    const Index pass = k / kTileDepth * kTileDepth;
    const Index depth = std::min(kTileDepth, depth_ - pass);
    return storage_.row(group) + (pass * panels() + panel * depth + k - pass) * kTileCols;
  }
  const float* row(Index group, Index panel, Index k) const {
    return const_cast<Face*>(this)->row(group, panel, k);
  }

  /// These panels' columns of y [rows, cols] = x [rows, numbers] times the group's right side, on this
  /// thread; rows <= kBlockRows. Element is what the face was packed as; x becomes it on the way.
  template <typename Element>
  void multiply(Index group, Stretch range, ConstRows x, MatrixView y, FaceWorkspace<Element>& left) const;

 private:
  Index numbers_ = 0;  // of depth
  Index depth_ = 0;    // words
  Index cols_ = 0;
  Matrix storage_;  // a row a group
};

}  // namespace moeloom::packed
