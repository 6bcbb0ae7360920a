#include "train/packing.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "shuffled.hpp"

namespace moeloom {
namespace {

/// Rows that are not full, by the room they have.
class OpenRows {
 public:
  explicit OpenRows(Index sequence_length)
      : sequence_length_(sequence_length), with_room_(at(sequence_length + 1)) {}

  /// The row with the least room for `length` tokens, perhaps a new one, which then has so much less.
  Index take(Index length) {
    const auto least = rooms_.lower_bound(length);
    if (least == rooms_.end()) {
      leave(rows_, sequence_length_ - length);
      return rows_++;
    }
    const Index room = *least;
    std::vector<Index>& rows = with_room_[at(room)];
    const Index row = rows.back();
    rows.pop_back();
    if (rows.empty()) rooms_.erase(least);
    leave(row, room - length);
    return row;
  }
  Index rows() const { return rows_; }

 private:
  void leave(Index row, Index room) {
    if (room == 0) return;
    if (with_room_[at(room)].empty()) rooms_.insert(room);
    with_room_[at(room)].push_back(row);
  }

  Index sequence_length_;
  Index rows_ = 0;
  std::vector<std::vector<Index>> with_room_;  // [room]
  std::set<Index> rooms_;                      // that some row has
};

}  // namespace

const char* name_of(TooLong rule) {
  if (rule == TooLong::kCut) return "cut";
  return rule == TooLong::kSplit ? "split" : "drop";
}

FittedPieces fit_to_length(std::span<const Piece> pieces, Index sequence_length, TooLong rule) {
  require(sequence_length >= 1 && sequence_length <= Index{UINT32_MAX},
          "a row has at least one position, and fewer than 2^32");
  const auto most = static_cast<std::uint32_t>(sequence_length);
  FittedPieces fitted;
  for (const Piece& whole : pieces) {
    if (whole.length <= most) {
      fitted.pieces.push_back(whole);
      continue;
    }
    ++fitted.too_long;
    std::uint32_t kept = 0;
    const std::uint32_t keep = rule == TooLong::kSplit ? whole.length : rule == TooLong::kCut ? most : 0;
    for (std::uint32_t length = 0; kept < keep; kept += length) {
      length = std::min(most, keep - kept);
      fitted.pieces.push_back({whole.example, whole.begin + kept, length, 0});
    }
    fitted.left_out += whole.length - kept;
  }
  return fitted;
}

PackedRows::PackedRows(std::span<const Piece> pieces, Index sequence_length, std::uint64_t seed)
    : sequence_length_(sequence_length), seed_(seed), length_begin_(at(sequence_length + 1)) {
  require(pieces.size() < std::size_t{UINT32_MAX}, "fewer than 2^32 pieces are packed together");
  for (const Piece& piece : pieces)
    require(piece.length >= 1 && Index{piece.length} <= sequence_length,
            "what is packed must fit into a row");
  for (const Piece& piece : pieces) ++length_begin_[piece.length];
  std::exclusive_scan(length_begin_.rbegin(), length_begin_.rend(), length_begin_.rbegin(), Index{0});
  pieces_.resize(pieces.size());
  std::vector<Index> next = length_begin_;
  for (const Piece& piece : pieces) pieces_[at(next[piece.length]++)] = piece;

  OpenRows open(sequence_length);
  std::vector<std::uint32_t> row_of;  // as many rows as pieces at most
  row_of.reserve(pieces_.size());
  for (const Piece& piece : pieces_) row_of.push_back(static_cast<std::uint32_t>(open.take(piece.length)));
  row_offsets_.assign(at(open.rows() + 1), 0);
  for (const std::uint32_t row : row_of) ++row_offsets_[row];
  std::exclusive_scan(row_offsets_.begin(), row_offsets_.end(), row_offsets_.begin(), Index{0});
  slots_.resize(pieces_.size());
  next = row_offsets_;
  for (std::size_t i = 0; i < row_of.size(); ++i)
    slots_[at(next[row_of[i]]++)] = static_cast<std::uint32_t>(i);
}

std::vector<Piece> PackedRows::row(Index row, Index epoch) const {
  require(row >= 0 && row < rows(), "a row must be one of those packed");
  const std::uint64_t key = dealing_key(seed_, "packing", epoch);
  const auto packed = at(Dealing(rows(), dealing_key(key, 0))(row));
  std::vector<Piece> pieces;
  for (Index i = row_offsets_[packed]; i < row_offsets_[packed + 1]; ++i) {
    const auto slot = Index{slots_[at(i)]};
    const std::uint32_t length = pieces_[at(slot)].length;
    const Index begin = length_begin_[length], end = length_begin_[length - 1];
    pieces.push_back(pieces_[at(begin + Dealing(end - begin, dealing_key(key, length))(slot - begin))]);
  }
  return pieces;
}

double PackedRows::used_share() const {
  if (rows() == 0) return 1;
  double used = 0;
  for (const Piece& piece : pieces_) used += piece.length;
  return used / (static_cast<double>(rows()) * static_cast<double>(sequence_length_));
}

Index PackedRows::bytes() const {
  const auto bytes_of = [](const auto& array) { return std::ssize(array) * Index{sizeof(array[0])}; };
  return bytes_of(pieces_) + bytes_of(length_begin_) + bytes_of(slots_) + bytes_of(row_offsets_);
}

}  // namespace moeloom
