// How many threads a rank should run.
#pragma once

#include "moeloom/base/violations.hpp"
#include "moeloom/comm/mesh.hpp"

#include <optional>

namespace moeloom {

/// Each thread has a stack and workspaces of its own; more of them than any machine has processors would only
/// use up memory.
inline constexpr Index kMostThreads = 1024;
/// That a thread may be bound to one of, from 0: as many as Linux knows masks for.
inline constexpr Index kMostProcessors = 1024;
void check_threads(Index threads, Violations& violations);

/// masks [ranks, words]: the processors that each rank of a node may run on, bit by bit -> how many `rank`
/// should count as its own: each divided by the ranks that may run on it, the sum rounded down; at least 1.
int share_of_processors(std::span<const std::int64_t> masks, int ranks, int rank);

/// Why this rank has no part of a processor beside those of its `threads`; empty: it has.
std::string why_no_free_processor(std::span<const std::int64_t> masks, int ranks, int rank, Index threads);
/// The same of the first rank that has none. Collective over the world.
std::string why_no_free_processor(const Mesh& mesh, Index threads);

/// `asked`; for 0 OMP_NUM_THREADS, for none this rank's share of the processors that mpirun or Slurm left it.
/// Collective over the node.
int threads_for(Index asked, std::optional<Index> omp_num_threads, const Communicator& node);

}  // namespace moeloom
