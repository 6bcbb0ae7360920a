#include "moeloom/moe/rebalance/expert_seats.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/moe/routing/no_expert.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace moeloom {

ExpertSeats::ExpertSeats(Index experts) : expert_at_(at(experts)) {
  std::iota(expert_at_.begin(), expert_at_.end(), Index{0});
  seat_of_ = expert_at_;
}

void ExpertSeats::swap(Index seat, Index other) {
  std::swap(expert_at_[at(seat)], expert_at_[at(other)]);
  for (const Index moved : {seat, other}) seat_of_[at(expert_at_[at(moved)])] = moved;
  as_numbered_ = std::ranges::is_sorted(expert_at_);
}

void ExpertSeats::find_seats(std::span<const std::int32_t> topk_idx, std::vector<std::int32_t>& seats) const {
  seats.resize(topk_idx.size());
  for (std::size_t slot = 0; slot < topk_idx.size(); ++slot) {
    const std::int32_t expert = topk_idx[slot];
    require(expert == kNoExpert || (expert >= 0 && expert < count()), "topk_idx names no expert");
    seats[slot] = expert == kNoExpert ? kNoExpert : static_cast<std::int32_t>(seat_of(expert));
  }
}

std::vector<Index> ExpertSeats::by_expert(std::span<const Index> by_seat) const {
  require(std::ssize(by_seat) == count(), "numbers by seat must be [experts]");
  std::vector<Index> numbers(by_seat.size());
  for (Index seat = 0; seat < count(); ++seat) numbers[at(expert_at(seat))] = by_seat[at(seat)];
  return numbers;
}

std::vector<SeatMove> moves_between(const ExpertSeats& before, const ExpertSeats& after) {
  std::vector<SeatMove> moves;
  for (Index seat = 0; seat < after.count(); ++seat) {
    const Index expert = after.expert_at(seat);
    if (before.seat_of(expert) != seat) moves.push_back({expert, before.seat_of(expert), seat});
  }
  return moves;
}

}  // namespace moeloom
