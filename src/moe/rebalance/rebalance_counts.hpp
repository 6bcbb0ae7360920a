// What rebalancing did: decisions, replicas and what they made travel.
#pragma once

#include "moe/rebalance/replica_plan.hpp"

#include <array>

namespace moeloom {

/// Of a layer since the start, of plans that rows travelled by in forward; those of slices are each counted.
/// Sums over all ranks are the job's: what all ranks of an ep row decide together, its first one counts. But
/// nanoseconds are each rank's, of both passes as they were predicted: the job's are the mean of its ranks.
struct RebalanceCounts {
  std::array<Index, 4> verdicts{};                      // layers and micro-batches, by RebalanceVerdict
  Index rows = 0;                                       // routed, of those
  Index padded_rows_before = 0, padded_rows_after = 0;  // had every rank as many as the fullest
  Index replicas = 0;                                   // held by this rank
  Index rows_moved = 0;                                 // computed here for another rank's experts
  std::int64_t weight_bytes = 0;                        // of replicas, sent by this rank
  std::int64_t gradient_bytes = 0;                      // sent by it to the owners
  std::int64_t uneven_nanoseconds = 0;                  // that rows without replicas cost over even ones
  std::int64_t saved_nanoseconds = 0;                   // of those, by replicas

  Index decisions() const { return verdicts[0] + verdicts[1] + verdicts[2] + verdicts[3]; }
  Index decided(RebalanceVerdict verdict) const { return verdicts[static_cast<std::size_t>(verdict)]; }
  /// Rows of the fullest rank over the mean; 0 without rows.
  double load_before() const { return load(padded_rows_before); }
  double load_after() const { return load(padded_rows_after); }
  /// Adds a decision, as `rank` of the ep row sees it; nothing of a plan without rebalancing.
  void add(const ReplicaPlan& plan, Index rank);
  RebalanceCounts& operator+=(const RebalanceCounts& more);
  RebalanceCounts& operator-=(const RebalanceCounts& earlier);

 private:
  double load(Index padded_rows) const {
    return rows == 0 ? 0 : static_cast<double>(padded_rows) / static_cast<double>(rows);
  }
};

/// Of all layers.
RebalanceCounts total(const std::vector<RebalanceCounts>& layers);
/// Of all ranks, layer by layer. Collective.
std::vector<RebalanceCounts> sum_over(const Communicator& ranks, std::vector<RebalanceCounts> layers);

}  // namespace moeloom
