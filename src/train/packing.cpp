#include "moeloom/train/packing.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <string>

#include "shuffled.hpp"

namespace moeloom {
namespace {

/// `order` by falling length; what has one length stays as it was.
std::vector<Index> longest_first(const std::vector<Index>& order, std::span<const Piece> pieces,
                                 Index sequence_length) {
  std::vector<Index> begin(at(sequence_length + 2));  // of each length; longer ones come before
  for (const Piece& piece : pieces) ++begin[piece.length];
  std::exclusive_scan(begin.rbegin(), begin.rend(), begin.rbegin(), Index{0});
  std::vector<Index> sorted(order.size());
  for (const Index i : order) sorted[at(begin[pieces[at(i)].length]++)] = i;
  return sorted;
}

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

PackedRows::PackedRows(std::span<const Piece> pieces, Index sequence_length, std::uint64_t seed, Index epoch)
    : sequence_length_(sequence_length) {
  for (const Piece& piece : pieces)
    require(piece.length >= 1 && Index{piece.length} <= sequence_length,
            "what is packed must fit into a row");
  const std::string name = "packing/" + std::to_string(epoch);
  const std::vector<Index> order =
      longest_first(shuffled(std::ssize(pieces), seed, name), pieces, sequence_length);
  OpenRows open(sequence_length);
  std::vector<Index> row_of(order.size());
  for (std::size_t i = 0; i < order.size(); ++i) row_of[i] = open.take(pieces[at(order[i])].length);

  const std::vector<Index> place_of_row = shuffled(open.rows(), seed, name + "/rows");
  std::vector<Index> next(at(open.rows() + 1));
  for (Index& row : row_of) ++next[at(row = place_of_row[at(row)])];
  std::exclusive_scan(next.begin(), next.end(), next.begin(), Index{0});
  row_offsets_ = next;
  pieces_.resize(pieces.size());
  for (std::size_t i = 0; i < order.size(); ++i) pieces_[at(next[at(row_of[i])]++)] = pieces[at(order[i])];
}

std::span<const Piece> PackedRows::row(Index row) const {
  require(row >= 0 && row < rows(), "a row must be one of those packed");
  const Index begin = row_offsets_[at(row)];
  return std::span(pieces_).subspan(at(begin), at(row_offsets_[at(row + 1)] - begin));
}

double PackedRows::used_share() const {
  if (rows() == 0) return 1;
  double used = 0;
  for (const Piece& piece : pieces_) used += piece.length;
  return used / (static_cast<double>(rows()) * static_cast<double>(sequence_length_));
}

}  // namespace moeloom
