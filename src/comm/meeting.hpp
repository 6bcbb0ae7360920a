// Where ranks meet before they exchange anything: each tells every other a few bytes, and waits no longer
// than it may.
//
// Messages from each to each, not a collective of MPI: so a rank knows who did not come.
#pragma once

#include "comm/messages.hpp"

#include <span>
#include <vector>

namespace moeloom {

/// Does not move. After a meeting to which somebody did not come in time there is no other.
class Meeting {
 public:
  /// `ranks` must outlive it. Collective over nothing.
  explicit Meeting(const Communicator& ranks) : ranks_(&ranks), messages_(ranks, Channel::kMeeting) {}

  /// mine [n], the same n on every rank and in each meeting -> the ranks that did not come within `seconds`
  /// (0: for ever), ascending. Collective. Throws MpiError.
  std::vector<Index> meet(std::span<const std::byte> mine, double seconds);
  /// What a rank told at the last meeting; unspecified of one that did not come.
  std::span<const std::byte> told_by(Index rank) const {
    return std::span(told_).subspan(at(rank * bytes_), at(bytes_));
  }

 private:
  std::vector<Index> missing();

  const Communicator* ranks_;
  Index bytes_ = 0;
  std::vector<std::byte> mine_, told_;  // which messages under way borrow
  Messages messages_;                   // ends before them
};

}  // namespace moeloom
