// Counts that travel before rows can: to each rank the rows that there are for its experts.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <vector>

namespace moeloom {

struct ReceivedCounts {
  std::vector<std::int64_t> of_experts;  // [ep, e]: rows that each rank has for the experts here
  std::vector<std::int64_t> beside;      // [ep]: the number that each rank sent here with them
};

/// tokens_per_expert [E], how many rows that is for each rank, sent_per_rank [ep], and, on every rank or on
/// none, a number for each rank, `beside` [ep]. One MPI_Alltoall; collective over ep. Throws CountError where
/// a rank's counts are not as many rows as it says.
ReceivedCounts exchange_counts(const Communicator& ep, std::span<const std::int64_t> tokens_per_expert,
                               std::span<const std::int64_t> sent_per_rank,
                               std::span<const std::int64_t> beside = {});

/// received [ep, e], ReceivedCounts' -> [E]: where this rank's rows begin among those of each expert's
/// holder, as the holder says. One MPI_Alltoall; collective over ep.
std::vector<Index> exchange_first_rows(const Communicator& ep, std::span<const std::int64_t> received,
                                       Index num_experts);

}  // namespace moeloom
