// Whether experts compute while rows travel, in how many chunks, and why: a pure function of the mesh, the
// dispatcher and the sizes.
#pragma once

#include "moeloom/plan/decide/dispatcher_choice.hpp"

namespace moeloom {

/// As --overlap asks: none is auto, 0 is off, else so many chunks.
using OverlapRequest = std::optional<Index>;

struct OverlapFacts {
  DispatcherKind dispatcher = DispatcherKind::kAlltoall;  // as it was decided
  Index ep_ranks = 1;
  Index ep_nodes = 1;                      // the most nodes that the ranks of one ep row lie on
  Index experts = 1;                       // of the rank that holds the fewest
  Index bytes_per_pair = 0;                // expected from one rank to another in one direction
  std::optional<double> products_seconds;  // of a layer's experts in a step, predicted; none: not known
};

struct OverlapChoice {
  Index chunks = 0;  // 0: rows travel whole, before and after the experts
  std::string reason;
};

/// Pure. auto: chunks that are large enough to pay for their messages, where rows leave the node, because
/// inside one the CPU itself is what copies rows. No more chunks than experts, whatever is asked for. Throws
/// ConfigError with the way out for a number of chunks and a dispatcher that moves rows whole.
OverlapChoice decide_overlap(OverlapRequest request, const OverlapFacts& facts);

}  // namespace moeloom
