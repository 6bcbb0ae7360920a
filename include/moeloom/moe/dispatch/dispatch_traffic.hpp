// What rows cost, as it is sent and as one copy for each chosen expert.
#pragma once

#include "moeloom/comm/node_map.hpp"

#include <cstdint>
#include <span>

namespace moeloom {

/// Since a dispatcher was made, by the rank that sent it.
struct DispatchTraffic {
  std::int64_t network_bytes = 0;  // to other nodes: rows, the numbers beside them, and where they land
  std::int64_t row_bytes = 0;      // one fp32 copy of a row for each chosen expert of another rank, each way

  DispatchTraffic operator-(const DispatchTraffic& earlier) const {
    return {network_bytes - earlier.network_bytes, row_bytes - earlier.row_bytes};
  }
};

/// Of per_rank [ranks], what is for ranks on other nodes than `rank`. No nodes: all ranks are on one.
inline Index sum_off_node(const NodeMap& nodes, Index rank, std::span<const Index> per_rank) {
  Index sum = 0;
  if (nodes.nodes() > 1)
    for (Index other = 0; other < std::ssize(per_rank); ++other)
      if (!nodes.same_node(rank, other)) sum += per_rank[at(other)];
  return sum;
}

}  // namespace moeloom
