// Examples of many lengths in rows of one length: best fit, longest first (Johnson 1974: at most 11/9 of the
// fewest rows and 6/9 of one more; of short conversations nearly every position is used).
//
// What comes into which row, and in which order rows come, is a function of the lengths, the seed and the
// epoch alone, so every mesh has the same rows. Which lengths share a row is found once; an epoch deals
// examples of one length, and the rows, anew. No epoch has a table of its own: a row is looked up when it is
// read, so that no step waits for an epoch to begin.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/train/too_long.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

/// Tokens of one example that are read by themselves.
struct Piece {
  std::uint32_t example = 0;
  std::uint32_t begin = 0;
  std::uint32_t length = 0;
  std::uint32_t targets = 0;  // of them learned, but for the first; packing carries it along
  bool operator==(const Piece&) const = default;
};

struct FittedPieces {
  std::vector<Piece> pieces;  // by example, then by place
  Index too_long = 0;         // examples that the rule met
  Index left_out = 0;         // tokens that it cost
};
/// Pieces of at most sequence_length tokens; of those that were longer `targets` is 0, to be counted anew.
FittedPieces fit_to_length(std::span<const Piece> pieces, Index sequence_length, TooLong rule);

class PackedRows {
 public:
  PackedRows() = default;
  /// Throws ShapeError unless each piece has from 1 to sequence_length tokens, and there are fewer than 2^32.
  PackedRows(std::span<const Piece> pieces, Index sequence_length, std::uint64_t seed);

  Index rows() const { return std::ssize(row_offsets_) - 1; }
  /// Pieces of a row in an epoch, longest first; together at most sequence_length tokens.
  std::vector<Piece> row(Index row, Index epoch = 0) const;
  /// Of all positions of all rows, those that hold a token.
  double used_share() const;
  /// That it holds.
  Index bytes() const;

 private:
  Index sequence_length_ = 0;
  std::uint64_t seed_ = 0;
  std::vector<Piece> pieces_;             // longest first, those of one length by their place
  std::vector<Index> length_begin_;       // [sequence_length + 1]: the first of pieces_ that is not longer
  std::vector<std::uint32_t> slots_;      // row after row: which of pieces_ would be there if none were dealt
  std::vector<Index> row_offsets_ = {0};  // [rows + 1], into slots_
};

}  // namespace moeloom
