// The decision for one layer and many steps: which experts change seats for good, so that the ranks' rows are
// even (--replace-every).
//
// Greedy, in whole numbers, a function of counts and constants alone, so that every rank makes the same. An
// expert of the fullest rank changes places with one of another rank, the two after which the fuller of both
// has fewest rows, and again, until the fullest has at most 1.05 times the mean or no change helps. Of all
// placements on that way the cheapest is taken:
//
//   cost = rows of the fullest rank * nanoseconds of a row + nanoseconds in which experts move
//
// where the next steps are taken to be as those that were counted. One that saves less than 5 % of the rows'
// time is not taken, nor one that would not have saved in the first and in the second half of the steps: then
// the imbalance does not last.
#pragma once

#include "moeloom/moe/rebalance/expert_seats.hpp"
#include "moeloom/moe/rebalance/replica_cost.hpp"

#include <array>
#include <string_view>

namespace moeloom {

enum class SeatVerdict {
  kEven,         // the fullest rank was within 5 % of the mean
  kNoneBetter,   // no two experts could change places so that the fullest rank has less
  kDoesNotLast,  // a half of the steps would have had no gain
  kDoesNotPay,   // moving would take longer than the next steps save
  kMade
};
inline constexpr std::array kSeatVerdicts = {SeatVerdict::kEven, SeatVerdict::kNoneBetter,
                                             SeatVerdict::kDoesNotLast, SeatVerdict::kDoesNotPay,
                                             SeatVerdict::kMade};
/// "even", "none better", ...
std::string_view name_of(SeatVerdict verdict);

/// Rows of each expert, of all ranks, in the first and the second half of some steps.
struct SeatLoads {
  std::vector<Index> first, second;  // [E]
};

/// Ranks of ep, the node of each (empty: all are on one), and those whose rows must be even: each alone, or
/// where a node pool makes a node's rows even, each node.
struct SeatRanks {
  Index ranks = 1;
  std::vector<Index> node_of = {};  // [ep]
  bool pooled_by_node = false;
};

struct SeatPlan {
  SeatVerdict verdict = SeatVerdict::kEven;
  ExpertSeats seats;                       // those before, unless kMade
  Index moved = 0;                         // experts that lie on another rank then
  double load_before = 1, load_after = 1;  // rows of the fullest over the mean
  std::int64_t saved = 0, moving = 0;      // nanoseconds of the cheapest placement met

  bool moves() const { return verdict == SeatVerdict::kMade; }
};

/// columns: ranks that hold an expert, of which each computes its own share of the rows (dp). Throws
/// ShapeError unless ep divides the experts.
SeatPlan plan_seats(const SeatLoads& loads, const ExpertSeats& seats, const SeatRanks& ranks,
                    const RebalanceRates& rates, Index columns);

}  // namespace moeloom
