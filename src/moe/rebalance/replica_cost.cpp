#include "moe/rebalance/replica_cost.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {
namespace {

/// What one kind of message keeps each rank's link busy with.
struct LinkUse {
  std::vector<std::int64_t> out, in;  // [ep], nanoseconds

  explicit LinkUse(Index ranks) : out(at(ranks)), in(at(ranks)) {}
  void add(Index from, Index to, std::int64_t nanoseconds) {
    if (from == to) return;
    out[at(from)] += nanoseconds;
    in[at(to)] += nanoseconds;
  }
  std::int64_t of(Index rank) const { return std::max(out[at(rank)], in[at(rank)]); }
  std::int64_t sum() const { return std::reduce(out.begin(), out.end()); }
};

}  // namespace

PlacementCost cost_of(const ReplicaPlacement& placement, const RebalanceRates& rates,
                      std::span<const Index> node_of) {
  const Index ranks = placement.ranks();
  const auto between = [&](Index a, Index b) -> const CrossingNanoseconds& {
    return node_of.empty() || node_of[at(a)] == node_of[at(b)] ? rates.on_node : rates.between_nodes;
  };
  LinkUse rows(ranks), weights(ranks), gradients(ranks);
  std::vector<Index> of_replicas(at(ranks));
  for (Index expert = 0; expert < placement.experts(); ++expert) {
    const Index owner = placement.counts().owner(expert);
    for (Index source = 0; source < ranks; ++source) {
      const Index count = placement.counts().of(source, expert), rank = placement.rank_of(source, expert);
      rows.add(source, rank, count * between(source, rank).row);
      if (rank != owner) of_replicas[at(rank)] += count;
    }
    if (!placement.is_split(expert)) continue;
    for (Index rank = 0; rank < ranks; ++rank)
      if (placement.holds_replica(rank, expert)) weights.add(owner, rank, between(owner, rank).weights);
    for (const SourceBranch& branch : placement.branches(expert))
      gradients.add(branch.rank, owner, between(branch.rank, owner).gradients);
  }
  const std::int64_t forward_row = rates.row_products / 3, backward_row = rates.row_products - forward_row;
  PlacementCost cost{.even = (4 * rows.sum() + placement.total() * rates.row_products) / ranks};
  for (Index rank = 0; rank < ranks; ++rank) {
    const Index replica = of_replicas[at(rank)], own = placement.load(rank) - replica;
    cost.rows = std::max(cost.rows, 4 * rows.of(rank));
    cost.forward =
        std::max(cost.forward, std::max(own * forward_row, weights.of(rank)) + replica * forward_row);
    const std::int64_t own_sums = own * backward_row / 2;
    cost.backward = std::max(cost.backward, own * backward_row - own_sums + replica * backward_row +
                                                std::max(own_sums, gradients.of(rank)));
  }
  return cost;
}

}  // namespace moeloom
