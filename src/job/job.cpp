#include "moeloom/job/job.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {

Exchange AskedExchange::over(const Exchange& known) const {
  return {.dispatcher = dispatcher.value_or(known.dispatcher),
          .combine = combine,
          .wire = wire,
          .chunks = chunks.value_or(known.chunks),
          .overlap_reduce = overlap_reduce.value_or(known.overlap_reduce),
          .overlap_gather = overlap_gather.value_or(known.overlap_gather),
          .rebalance = rebalance,
          .expert_rows = known.expert_rows};
}

Index Layout::ep_on_node() const {
  if (ep_per_node > 0) return ep_per_node;
  const Index apart = mesh.ep_is_fastest() ? 1 : mesh.dp;
  // A row that begins in the middle of a node lies on more nodes: then as the worst of them.
  return std::gcd(mesh.ep, std::max<Index>(ranks_per_node / apart, 1));
}

}  // namespace moeloom
