// The decision for one layer and micro-batch: which experts get a replica where, and which rows go to it.
//
// Greedy, in whole numbers, a function of counts and constants alone, so that every rank makes the same.
// The fullest rank gives atoms of one expert to one rank with fewer rows, those that save most for the
// weights that they make travel, and again, until the fullest has at most 1.05 times the mean or no move
// makes it less full. Of all placements on that way the cheapest is taken (replica_cost.hpp): often the
// first, which moves nothing: another one must save 5 %.
#pragma once

#include "moe/rebalance/replica_cost.hpp"

#include <string_view>

namespace moeloom {

enum class RebalanceVerdict {
  kEven,        // the fullest rank was within 5 % of the mean
  kDoesNotPay,  // weights and gradients would take longer than the rows save
  kNoRoom,      // no atom can move so that the fullest rank has less
  kMade
};
/// "even", "does not pay", ...
std::string_view name_of(RebalanceVerdict verdict);

struct ReplicaPlan {
  RebalanceVerdict verdict = RebalanceVerdict::kEven;
  ReplicaPlacement placement = {};
  ServedExperts served = {};
  PlacementCost before = {}, after = {};
  Index fullest_before = 0, fullest_after = 0;  // rows of the fullest rank

  /// Whether any rank holds a replica.
  bool moves() const { return verdict == RebalanceVerdict::kMade; }
  /// Of the tables of the placement and of what is served.
  static double bytes_of(Index ranks, Index experts) {
    const Index atoms = ranks * experts;
    return 2 * array_bytes(atoms, sizeof(Index)) + 2 * array_bytes(atoms, sizeof(std::int32_t));
  }
};

/// A rank holds at most ceil(E / ep) replicas, as many as its own experts. node_of as in cost_of().
ReplicaPlan plan_replicas(SourceCounts counts, const RebalanceRates& rates, std::span<const Index> node_of);

}  // namespace moeloom
