// How the rows that land on a rank are made of leaves: of exact sums, whose order no mesh knows.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

/// Of a rank's tokens; the same on every rank.
struct TokenLeaves {
  Index count = 1;
  Index slots = 0;  // of each
};

/// topk_idx [N]: the chosen experts of this rank's tokens, or the numbers that serve them -> [e, ep x
/// leaves]: rows of each expert here by source rank and leaf of that rank, the order in which they land.
/// Collective over ep.
std::vector<Index> exchange_leaf_counts(const Communicator& ep, std::span<const std::int32_t> topk_idx,
                                        Index num_experts, const TokenLeaves& leaves);

}  // namespace moeloom
