// Which expert lies where. Seats are numbered as dispatchers number experts: rank r of ep has the seats that
// experts_of() gives it. A run starts with expert e on seat e; experts that move for good change seats.
#pragma once

#include "moeloom/comm/mesh.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

class ExpertSeats {
 public:
  /// Every expert on the seat of its number.
  explicit ExpertSeats(Index experts = 0);

  Index count() const { return std::ssize(expert_at_); }
  Index expert_at(Index seat) const { return expert_at_[at(seat)]; }
  Index seat_of(Index expert) const { return seat_of_[at(expert)]; }
  /// The experts of a stretch of seats, in its order.
  std::span<const Index> experts_at(ExpertRange seats) const {
    return std::span(expert_at_).subspan(at(seats.begin), at(seats.count));
  }
  /// No expert has moved.
  bool as_numbered() const { return as_numbered_; }
  /// The experts on two seats change places.
  void swap(Index seat, Index other);

  /// Experts topk_idx [N] -> their seats [N]. kNoExpert stays. Throws ShapeError for an id outside.
  void find_seats(std::span<const std::int32_t> topk_idx, std::vector<std::int32_t>& seats) const;
  /// Numbers by seat [E] -> by expert [E].
  std::vector<Index> by_expert(std::span<const Index> by_seat) const;

  friend bool operator==(const ExpertSeats&, const ExpertSeats&) = default;

 private:
  std::vector<Index> expert_at_;  // [E]
  std::vector<Index> seat_of_;    // [E]
  bool as_numbered_ = true;
};

/// An expert that changes seats.
struct SeatMove {
  Index expert = 0;
  Index from = 0, to = 0;  // seats
};
/// By the seats that they come to.
std::vector<SeatMove> moves_between(const ExpertSeats& before, const ExpertSeats& after);

}  // namespace moeloom
