#include "moe/rebalance/replica_plan.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <optional>

namespace moeloom {
namespace {

/// What is saved must be more than a twentieth: messages, copies and waiting are not in the cost.
constexpr std::int64_t kLeastSaving = 20;

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
    const std::vector<Index> emptiest = emptiest_ranks();
    std::optional<Move> best;
    for (Index expert = 0; expert < placement_.experts(); ++expert) {
      if (placement_.atoms(from, expert) == 0) continue;
      for (const Index to : emptiest)
        if (may_hold(to, expert) && placement_.load(to) < placement_.load(from))
          keep_better(fitting(from, to, expert), best);
    }
    if (!best) best = smallest(from);
    if (!best) return false;
    for (const Index source : best->sources) placement_.move(source, best->expert, best->to);
    return true;
  }

 private:
  /// Enough to choose from; among all of them a search would take as long as the products of many ranks.
  std::vector<Index> emptiest_ranks() const {
    constexpr Index kMost = 8;
    std::vector<Index> ranks(at(placement_.ranks()));
    std::iota(ranks.begin(), ranks.end(), Index{0});
    if (std::ssize(ranks) <= kMost) return ranks;
    std::ranges::stable_sort(ranks, {}, [&](Index rank) { return placement_.load(rank); });
    ranks.resize(kMost);
    return ranks;
  }
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

  /// The first of those that `to` has room for, as many as save most: its own rows, which then need not
  /// travel, then those of sources near it in the tree of sums, whose gradients may become one branch.
  Move fitting(Index from, Index to, Index expert) {
    std::vector<Index> sources;
    for (Index source = 0; source < placement_.ranks(); ++source)
      if (placement_.rank_of(source, expert) == from && placement_.counts().of(source, expert) > 0)
        sources.push_back(source);
    const auto near_first = [&](Index source) {
      return std::pair(std::bit_width(at(source ^ to)), -placement_.counts().of(source, expert));
    };
    std::ranges::stable_sort(sources, {}, near_first);
    Move move{.expert = expert, .to = to}, best;
    const std::int64_t before = traffic(expert);
    std::int64_t of_rows = 0;
    for (const Index source : sources) {
      const Index rows = placement_.counts().of(source, expert);
      if (placement_.load(from) <= mean_ || placement_.load(to) + rows > std::max(most_, mean_)) continue;
      placement_.move(source, expert, to);
      move.sources.push_back(source);
      move.rows += rows;
      of_rows += rows * (rates_.row_products + crossing(source, from) - crossing(source, to));
      move.saved = of_rows + before - traffic(expert);
      if (best.rows == 0 || move.saved > best.saved) best = move;
    }
    for (const Index source : move.sources) placement_.move(source, expert, from);  // a trial
    return best;
  }
  /// Nanoseconds in which weights and gradients of an expert cross.
  std::int64_t traffic(Index expert) const {
    const Index owner = placement_.counts().owner(expert);
    std::int64_t sum = 0;
    for (Index rank = 0; rank < placement_.ranks(); ++rank)
      if (placement_.holds_replica(rank, expert)) sum += between(owner, rank).weights;
    for (const SourceBranch& branch : placement_.branches(expert))
      if (branch.rank != owner) sum += between(branch.rank, owner).gradients;
    return sum;
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
  const std::int64_t worth = plan.before.total() - plan.before.total() / kLeastSaving;
  while (!search.even() && search.step()) {
    if (plan.verdict == RebalanceVerdict::kNoRoom) plan.verdict = RebalanceVerdict::kDoesNotPay;
    const PlacementCost cost = cost_of(search.placement(), rates, node_of);
    if (cost.total() >= std::min(plan.after.total(), worth)) continue;
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
