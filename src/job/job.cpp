#include "moeloom/job/job.hpp"

namespace moeloom {

Exchange AskedExchange::over(const Exchange& known) const {
  return {.dispatcher = dispatcher.value_or(known.dispatcher),
          .combine = combine,
          .wire = wire,
          .chunks = chunks.value_or(known.chunks),
          .overlap_reduce = overlap_reduce.value_or(known.overlap_reduce),
          .overlap_gather = overlap_gather.value_or(known.overlap_gather),
          .node_pool = node_pool.value_or(known.node_pool),
          .rebalance = rebalance,
          .replace_every = replace_every,
          .expert_rows = known.expert_rows};
}

}  // namespace moeloom
