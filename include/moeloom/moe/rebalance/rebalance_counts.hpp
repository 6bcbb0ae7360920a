// What rebalancing did: decisions, replicas and what they made travel.
#pragma once

#include "moeloom/moe/rebalance/replica_plan.hpp"

#include <array>

namespace moeloom {

/// Since the start. Sums over all ranks are the job's: what all ranks of an ep row decide together, its first
/// one counts.
struct RebalanceCounts {
  std::array<Index, 4> verdicts{};                        // layers and micro-batches, by RebalanceVerdict
  Index rows = 0;                                         // routed, of those
  Index fullest_rows_before = 0, fullest_rows_after = 0;  // of the fullest rank, summed over them
  Index replicas = 0;                                     // held by this rank
  Index rows_moved = 0;                                   // computed here for another rank's experts
  std::int64_t weight_bytes = 0;                          // of replicas, sent by this rank
  std::int64_t gradient_bytes = 0;                        // sent by it to the owners

  Index decided(RebalanceVerdict verdict) const { return verdicts[static_cast<std::size_t>(verdict)]; }
  /// Of the fullest rank over the mean of `ranks`; 0 without rows.
  double load(Index fullest_rows, Index ranks) const {
    return rows == 0 ? 0 : static_cast<double>(fullest_rows * ranks) / static_cast<double>(rows);
  }
  /// Adds a decision, as `rank` of the ep row sees it.
  void add(const ReplicaPlan& plan, Index rank);
  RebalanceCounts& operator+=(const RebalanceCounts& more);
  RebalanceCounts operator-(const RebalanceCounts& earlier) const;
};

}  // namespace moeloom
