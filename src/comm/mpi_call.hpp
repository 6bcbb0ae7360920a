// One way to call MPI: every return code is read, every count is narrowed once.
#pragma once

#include "comm/node_map.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/index.hpp"
#include "moeloom/comm/communicator.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#define OMPI_SKIP_MPICXX 1  // without the C++ interface, which MPI 3 removed
#include <mpi.h>

namespace moeloom {

/// Throws MpiError with the call's name, MPI's text and this process's world rank.
inline void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  int rank = -1;
  MPI_Error_string(code, text, &length);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  throw MpiError(std::string(call) + " failed on rank " + std::to_string(rank) + ": " +
                 std::string(text, static_cast<std::size_t>(length)));
}

/// Between MPI_Init and MPI_Finalize, whoever called them.
inline bool mpi_is_running() {
  int initialised = 0;
  int finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised != 0 && finalised == 0;
}

inline int mpi_count(Index n) {
  require(n >= 0 && n <= std::numeric_limits<int>::max(), "an MPI count must fit an int");
  return static_cast<int>(n);
}

/// Where each rank's part begins, and after the last the sum.
inline std::vector<Index> offsets_of(std::span<const Index> counts_per_rank) {
  std::vector<Index> offsets(counts_per_rank.size() + 1);
  std::partial_sum(counts_per_rank.begin(), counts_per_rank.end(), offsets.begin() + 1);
  return offsets;
}

inline std::vector<int> mpi_counts(std::span<const Index> values) {
  std::vector<int> counts(values.size());
  std::ranges::transform(values, counts.begin(), mpi_count);
  return counts;
}

/// A communicator that frees itself if it is ours.
struct CommunicatorHandle {
  MPI_Comm comm = MPI_COMM_NULL;
  bool owned = true;
  bool knows_nodes = false;      // what follows was asked
  bool on_one_node = false;      // the ranks of a group of several
  std::optional<NodeMap> nodes;  // of a group on several
  bool pretends = false;         // that they are the nodes, and so do groups that are split from it
  CommunicatorHandle(MPI_Comm c, bool o) : comm(c), owned(o) {}
  CommunicatorHandle(const CommunicatorHandle&) = delete;
  CommunicatorHandle& operator=(const CommunicatorHandle&) = delete;
  ~CommunicatorHandle() {
    if (owned && comm != MPI_COMM_NULL && mpi_is_running()) MPI_Comm_free(&comm);
  }
};

}  // namespace moeloom
