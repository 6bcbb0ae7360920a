#include "moeloom/moe/rebalance/replica_plan.hpp"

#include <algorithm>
#include <optional>

namespace moeloom {
namespace {

/// Atoms of one expert that go from the fullest rank to another.
struct Move {
  Index expert = 0;
  Index to = 0;
  std::vector<Index> sources = {};
  Index rows = 0;
  std::int64_t saved = 0;  // nanoseconds, as far as these atoms alone tell
};

/// One greedy way from the owners' placement to an even one.
class Search {
 public:
  Search(const ReplicaPlacement& start, const RebalanceRates& rates, std::span<const Index> node_of)
      : placement_(start), rates_(rates), node_of_(node_of), room_(ceil_div(start.experts(), start.ranks())) {
    const Index total = start.total(), ranks = start.ranks();
    most_ = 105 * total / (100 * ranks);
    mean_ = ceil_div(total, ranks);
  }

  const ReplicaPlacement& placement() const { return placement_; }
  bool even() const { return placement_.load(placement_.fullest()) <= std::max(most_, mean_); }

  /// Moves atoms away from the fullest rank; false: none may.
  bool step() {
    const Index from = placement_.fullest();
    std::optional<Move> best;
    for (Index expert = 0; expert < placement_.experts(); ++expert) {
      if (placement_.atoms(from, expert) == 0) continue;
      for (Index to = 0; to < placement_.ranks(); ++to)
        if (may_hold(to, expert) && placement_.load(to) < placement_.load(from))
          keep_better(fitting(from, to, expert), best);
    }
    if (!best) best = smallest(from);
    if (!best) return false;
    for (const Index source : best->sources) placement_.move(source, best->expert, best->to);
    return true;
  }

 private:
  bool may_hold(Index rank, Index expert) const {
    return placement_.counts().owner(expert) == rank || placement_.atoms(rank, expert) > 0 ||
           placement_.replica_count(rank) < room_;
  }
  const CrossingNanoseconds& between(Index a, Index b) const {
    return node_of_.empty() || node_of_[at(a)] == node_of_[at(b)] ? rates_.on_node : rates_.between_nodes;
  }
  static void keep_better(Move move, std::optional<Move>& best) {
    if (move.rows > 0 && (!best || move.saved > best->saved)) best = std::move(move);
  }
  std::int64_t crossing(Index source, Index rank) const {
    return source == rank ? 0 : 4 * between(source, rank).row;
  }

  /// Those that `to` has room for, its own rows first, which then need not travel, then by falling rows.
  Move fitting(Index from, Index to, Index expert) const {
    std::vector<Index> sources;
    for (Index source = 0; source < placement_.ranks(); ++source)
      if (placement_.rank_of(source, expert) == from && placement_.counts().of(source, expert) > 0)
        sources.push_back(source);
    const auto rank_first = [&](Index source) {
      return std::pair(source != to, -placement_.counts().of(source, expert));
    };
    std::ranges::stable_sort(sources, {}, rank_first);
    Move move{.expert = expert, .to = to};
    for (const Index source : sources) {
      const Index rows = placement_.counts().of(source, expert);
      const bool needed = placement_.load(from) - move.rows > mean_;
      if (needed && placement_.load(to) + move.rows + rows <= std::max(most_, mean_)) add(source, from, move);
    }
    const Index owner = placement_.counts().owner(expert);
    if (to != owner && placement_.atoms(to, expert) == 0) move.saved -= 2 * between(owner, to).weights;
    return move;
  }

  void add(Index source, Index from, Move& move) const {
    const Index rows = placement_.counts().of(source, move.expert);
    move.sources.push_back(source);
    move.rows += rows;
    move.saved += rows * (rates_.row_products + crossing(source, from) - crossing(source, move.to));
  }

  /// Where no atom fits below the limit: the one after which the fuller of two ranks has least.
  std::optional<Move> smallest(Index from) const {
    std::optional<Move> best;
    Index least = placement_.load(from);
    for (Index expert = 0; expert < placement_.experts(); ++expert)
      for (Index source = 0; source < placement_.ranks() && placement_.atoms(from, expert) > 0; ++source) {
        const Index rows = placement_.counts().of(source, expert);
        if (rows == 0 || placement_.rank_of(source, expert) != from) continue;
        for (Index to = 0; to < placement_.ranks(); ++to) {
          const Index fuller = std::max(placement_.load(to) + rows, placement_.load(from) - rows);
          if (to == from || fuller >= least || !may_hold(to, expert)) continue;
          least = fuller;
          best = Move{.expert = expert, .to = to, .sources = {source}, .rows = rows};
        }
      }
    return best;
  }

  ReplicaPlacement placement_;
  const RebalanceRates& rates_;
  std::span<const Index> node_of_;
  Index room_;  // replicas of a rank
  Index most_ = 0, mean_ = 0;
};

}  // namespace

std::string_view name_of(RebalanceVerdict verdict) {
  switch (verdict) {
    case RebalanceVerdict::kEven:
      return "even";
    case RebalanceVerdict::kDoesNotPay:
      return "does not pay";
    case RebalanceVerdict::kNoRoom:
      return "no room";
    case RebalanceVerdict::kMade:
      return "made";
  }
  return "";
}

ReplicaPlan plan_replicas(SourceCounts counts, const RebalanceRates& rates, std::span<const Index> node_of) {
  ReplicaPlan plan{.placement = ReplicaPlacement(std::move(counts))};
  plan.before = plan.after = cost_of(plan.placement, rates, node_of);
  plan.fullest_before = plan.fullest_after = plan.placement.load(plan.placement.fullest());
  Search search(plan.placement, rates, node_of);
  if (search.even()) return plan;
  plan.verdict = RebalanceVerdict::kNoRoom;
  while (!search.even() && search.step()) {
    if (plan.verdict == RebalanceVerdict::kNoRoom) plan.verdict = RebalanceVerdict::kDoesNotPay;
    const PlacementCost cost = cost_of(search.placement(), rates, node_of);
    if (cost.total() >= plan.after.total()) continue;
    plan.verdict = RebalanceVerdict::kMade;
    plan.placement = search.placement();
    plan.after = cost;
  }
  if (!plan.moves()) return plan;
  plan.fullest_after = plan.placement.load(plan.placement.fullest());
  plan.served = ServedExperts(plan.placement);
  return plan;
}

}  // namespace moeloom
