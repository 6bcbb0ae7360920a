// How many threads a rank should run.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/comm/communicator.hpp"

#include <optional>

namespace moeloom {

/// masks [ranks, words]: the processors that each rank of a node may run on, bit by bit -> how many `rank`
/// should count as its own: each divided by the ranks that may run on it, the sum rounded down; at least 1.
int share_of_processors(std::span<const std::int64_t> masks, int ranks, int rank);

/// `share`, or less: a quota is divided by the ranks that have the same; at least 1. quotas [ranks, 2]: in
/// thousandths of a processor, 0 for none, and whose it is.
int share_within_quota(int share, std::span<const std::int64_t> quotas, int rank);

/// `asked`; for 0 OMP_NUM_THREADS, for none this rank's share of the processors that mpirun or Slurm left it,
/// within the quota of a container.
/// Collective over the node.
int threads_for(Index asked, std::optional<Index> omp_num_threads, const Communicator& node);

}  // namespace moeloom
