// Experts from a token's id alone (Roller et al. 2021, "Hash Layers", random hash): the same in every place
// of a text, in training and after it, and even for ids that are equally frequent.
#pragma once

#include "moeloom/moe/routing/router_settings.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

/// input_ids [T] -> topk_idx [T, K], different experts for each token; layers have hashes of their own.
void choose_by_hash(std::span<const std::int32_t> input_ids, Index layer, const RouterSettings& settings,
                    std::vector<std::int32_t>& topk_idx);

}  // namespace moeloom
