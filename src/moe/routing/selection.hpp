// Which rows of an expert are kept when it may have no more than so many, over the tokens of all ranks.
//
// A candidate is a pair of token and expert. Candidates are ordered as ranks and tokens are, so which are
// kept depends on the tokens of the world, and not on which rank holds which expert.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/moe/routing/chosen_experts.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

struct Candidates {
  std::span<const std::int32_t> expert;  // [n]; kNoExpert: none
  std::span<const float> value;          // [n]
  Index num_experts = 0;
};

/// keep [n]: of each expert the `capacity` candidates of largest value; of equal ones those of earlier
/// tokens. NaN is below all numbers. The values are never gathered: four sums of 256 counts an expert find
/// the bits of the smallest value that is kept. Collective over the world, also without a candidate.
std::vector<std::uint8_t> keep_largest(const Communicator& world, const Candidates& candidates,
                                       Index capacity);

}  // namespace moeloom
