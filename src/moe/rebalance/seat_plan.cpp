#include "moeloom/moe/rebalance/seat_plan.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>
#include <optional>

namespace moeloom {
namespace {

constexpr std::int64_t kLeastSaving = 20;  // a twentieth

/// Ranks as they are evened out: units of one rank or of a node's.
struct Units {
  std::vector<Index> of_rank;  // [ep]
  std::vector<Index> ranks;    // [units] in each

  explicit Units(const SeatRanks& r) : of_rank(at(r.ranks)) {
    std::iota(of_rank.begin(), of_rank.end(), Index{0});
    if (r.pooled_by_node) of_rank = r.node_of.empty() ? std::vector<Index>(at(r.ranks), 0) : r.node_of;
    ranks.assign(at(*std::ranges::max_element(of_rank) + 1), 0);
    for (const Index unit : of_rank) ++ranks[at(unit)];
  }
  Index count() const { return std::ssize(ranks); }
};

struct Swap {
  Index seat = 0, other = 0;
  Index fuller = 0;  // rows a rank of the fuller unit, after it
};

class Search {
 public:
  Search(const std::vector<Index>& rows, const ExpertSeats& seats, const SeatRanks& ranks)
      : rows_(rows), seats_(seats), units_(ranks), per_rank_(seats.count() / ranks.ranks) {
    loads_ = loads_of(rows);
    const Index total = std::reduce(rows.begin(), rows.end(), Index{0});
    mean_ = ceil_div(total, ranks.ranks);
    most_ = std::max(mean_, 105 * total / (100 * ranks.ranks));
  }

  const ExpertSeats& seats() const { return seats_; }
  bool even() const { return fullest() <= most_; }
  /// Rows of a rank of the fullest unit.
  Index fullest() const { return share(fullest_unit(), loads_); }
  /// The same, had the experts these rows.
  Index fullest_of(std::span<const Index> rows) const {
    const std::vector<Index> loads = loads_of(rows);
    Index most = 0;
    for (Index unit = 0; unit < units_.count(); ++unit) most = std::max(most, share(unit, loads));
    return most;
  }

  /// The best change of places; false: none helps.
  bool step() {
    const Index from = fullest_unit();
    std::optional<Swap> best;
    for (Index seat = 0; seat < seats_.count(); ++seat) {
      if (unit_of(seat) != from) continue;
      for (Index other = 0; other < seats_.count(); ++other) {
        const Index to = unit_of(other), less = rows_of(seat) - rows_of(other);
        if (to == from || less <= 0) continue;
        const Index fuller = std::max(ceil_div(loads_[at(from)] - less, units_.ranks[at(from)]),
                                      ceil_div(loads_[at(to)] + less, units_.ranks[at(to)]));
        if (fuller < (best ? best->fuller : fullest())) best = Swap{seat, other, fuller};
      }
    }
    if (!best) return false;
    const Index less = rows_of(best->seat) - rows_of(best->other);
    loads_[at(from)] -= less;
    loads_[at(unit_of(best->other))] += less;
    seats_.swap(best->seat, best->other);
    return true;
  }

 private:
  Index rank_of(Index seat) const { return seat / per_rank_; }
  Index unit_of(Index seat) const { return units_.of_rank[at(rank_of(seat))]; }
  Index rows_of(Index seat) const { return rows_[at(seats_.expert_at(seat))]; }
  Index share(Index unit, const std::vector<Index>& loads) const {
    return ceil_div(loads[at(unit)], units_.ranks[at(unit)]);
  }
  Index fullest_unit() const {
    Index most = 0;
    for (Index unit = 1; unit < units_.count(); ++unit)
      if (share(unit, loads_) > share(most, loads_)) most = unit;
    return most;
  }
  std::vector<Index> loads_of(std::span<const Index> rows) const {
    std::vector<Index> loads(at(units_.count()));
    for (Index seat = 0; seat < seats_.count(); ++seat)
      loads[at(unit_of(seat))] += rows[at(seats_.expert_at(seat))];
    return loads;
  }

  std::span<const Index> rows_;
  ExpertSeats seats_;
  Units units_;
  Index per_rank_;            // seats of a rank
  std::vector<Index> loads_;  // [units]
  Index mean_ = 0, most_ = 0;
};

/// What a row of the fullest rank costs a step: its products, and four times the way that it takes in the
/// mean.
std::int64_t row_nanoseconds(const SeatRanks& ranks, const RebalanceRates& rates) {
  std::int64_t crossing = 0;
  const auto pairs = ranks.ranks * ranks.ranks;
  for (Index a = 0; a < ranks.ranks; ++a)
    for (Index b = 0; b < ranks.ranks; ++b)
      if (a != b)
        crossing +=
            (ranks.node_of.empty() || ranks.node_of[at(a)] == ranks.node_of[at(b)] ? rates.on_node
                                                                                   : rates.between_nodes)
                .row;
  return rates.row_products + 4 * crossing / pairs;
}

/// The busiest rank's nanoseconds, and how many experts change ranks.
struct Moving {
  std::int64_t nanoseconds = 0;
  Index experts = 0;
};

/// Weights go along each row of the mesh, the two moments along one of `columns`, in shares.
Moving moving(const ExpertSeats& before, const ExpertSeats& after, const SeatRanks& ranks,
              const RebalanceRates& rates, Index columns) {
  const Index each = before.count() / ranks.ranks;
  std::vector<std::int64_t> out(at(ranks.ranks)), in(at(ranks.ranks));
  Moving result;
  for (Index expert = 0; expert < before.count(); ++expert) {
    const Index from = before.seat_of(expert) / each, to = after.seat_of(expert) / each;
    if (from == to) continue;
    const bool on_node = ranks.node_of.empty() || ranks.node_of[at(from)] == ranks.node_of[at(to)];
    const std::int64_t cost =
        (on_node ? rates.on_node : rates.between_nodes).weights * (columns + 2) / columns;
    ++result.experts;
    result.nanoseconds = std::max({result.nanoseconds, out[at(from)] += cost, in[at(to)] += cost});
  }
  return result;
}

}  // namespace

std::string_view name_of(SeatVerdict verdict) {
  switch (verdict) {
    case SeatVerdict::kEven:
      return "even";
    case SeatVerdict::kNoneBetter:
      return "none better";
    case SeatVerdict::kDoesNotLast:
      return "does not last";
    case SeatVerdict::kDoesNotPay:
      return "does not pay";
    case SeatVerdict::kMade:
      break;
  }
  return "made";
}

SeatPlan plan_seats(const SeatLoads& loads, const ExpertSeats& seats, const SeatRanks& ranks,
                    const RebalanceRates& rates, Index columns) {
  require(seats.count() % ranks.ranks == 0, "experts change seats where ep divides their number");
  std::vector<Index> rows(loads.first);
  for (std::size_t expert = 0; expert < rows.size(); ++expert) rows[expert] += loads.second[expert];
  const auto total = static_cast<double>(std::reduce(rows.begin(), rows.end(), Index{0}));
  const std::int64_t row_cost = row_nanoseconds(ranks, rates);
  Search search(rows, seats, ranks);
  const Search start = search;
  const auto load = [&](Index fullest) {
    return total == 0 ? 1.0 : static_cast<double>(fullest) * static_cast<double>(ranks.ranks) / total;
  };
  const auto time_of = [&](Index fullest) { return fullest * row_cost / columns; };

  SeatPlan plan;
  plan.seats = seats;
  plan.load_before = plan.load_after = load(start.fullest());
  if (start.even()) return plan;
  Search best = start;
  std::int64_t least = 0;
  bool any = false;
  while (!search.even() && search.step()) {
    const Moving move = moving(seats, search.seats(), ranks, rates, columns);
    const std::int64_t saved = time_of(start.fullest()) - time_of(search.fullest());
    if (!any || move.nanoseconds - saved < least) {
      least = move.nanoseconds - saved;
      best = search;
      plan.saved = saved, plan.moving = move.nanoseconds, plan.moved = move.experts;
    }
    any = true;
  }
  const auto gains = [&](const std::vector<Index>& half) {
    const Index before = start.fullest_of(half);
    return kLeastSaving * (before - best.fullest_of(half)) >= before;
  };
  if (!any)
    plan.verdict = SeatVerdict::kNoneBetter;
  else if (-least * kLeastSaving < time_of(start.fullest()))
    plan.verdict = SeatVerdict::kDoesNotPay;
  else if (!gains(loads.first) || !gains(loads.second))
    plan.verdict = SeatVerdict::kDoesNotLast;
  else
    plan.verdict = SeatVerdict::kMade;
  plan.load_after = load(best.fullest());
  if (plan.moves())
    plan.seats = best.seats();
  else
    plan.moved = 0;
  return plan;
}

}  // namespace moeloom
