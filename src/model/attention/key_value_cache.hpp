// Keys and values of one sequence's positions that queries to come may see, of one layer.
//
// A layer with a window drops positions that no later query sees, a few dozen at a time, so that the rest
// lies in one piece and little is moved. What is kept begins where a panel of attention's begins: its sums
// then have the same order, and its results the same bits, as if nothing were dropped.
#pragma once

#include "moeloom/tensor/matrix.hpp"

namespace moeloom {

class KeyValueCache {
 public:
  /// Of sequences of up to `capacity` positions. window: AttentionShape's; 0: nothing is dropped.
  KeyValueCache(Index capacity, Index window, Index key_width, Index value_width);

  /// Positions that are held: [begin, end).
  Index begin() const { return begin_; }
  Index end() const { return end_; }
  /// [end - begin, width] of them. Valid until the cache changes.
  ConstMatrixView keys() const { return key_.view().rows_from(0, end_ - begin_); }
  ConstMatrixView values() const { return value_.view().rows_from(0, end_ - begin_); }
  /// Of memory.
  Index bytes() const;

  /// Whether a sequence may go on behind its first `length` positions: those that it then sees are held.
  bool serves(Index length) const;
  /// Keeps the first `length` positions of a sequence of up to `capacity`. Throws ShapeError unless
  /// serves(length).
  void restart(Index length, Index capacity);
  /// Takes key [n, key width] and value [n, value width] of the n positions from `first` on, for queries of
  /// them: memory for all n until drop_unseen(). What was held from `first` on is void. Throws ShapeError
  /// unless serves(first), and when `capacity` positions are full.
  void append(Index first, ConstMatrixView key, ConstMatrixView value);
  /// Gives back the memory of positions that no query behind the last one sees.
  void drop_unseen();

 private:
  /// Rows that are always there: all positions, or the window and room to move seldom.
  Index usual_rows() const;
  /// The first position that a query at `position` or behind it sees, from the beginning of its panel.
  Index first_seen(Index position) const;
  void move_to(Index begin, Index rows);

  Index capacity_;
  Index window_;
  Matrix key_;
  Matrix value_;
  Index begin_ = 0;
  Index end_ = 0;
};

}  // namespace moeloom
