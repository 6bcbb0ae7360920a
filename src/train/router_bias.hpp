// Balance without a loss: a bias an expert, added in the choice alone, that goes up where an expert is chosen
// too rarely and down where too often (Wang et al. 2024, "Auxiliary-Loss-Free Load Balancing").
#pragma once

#include "model/parts/parameters.hpp"

#include <cstdint>
#include <span>

namespace moeloom {

/// bias += rate * sign(mean - count), as DeepSeek-V3. chosen [E]: how often each expert was chosen in a step,
/// over the world. The error is compared in integers, so the bias is the same on every rank and mesh. Nothing
/// moves where nothing was chosen.
void move_router_bias(std::span<const std::int64_t> chosen, double rate, std::span<float> bias);

/// Moves the bias of every layer that has one; chosen [layers, E]. A rate of 0 leaves them alone.
void move_router_biases(std::span<const std::int64_t> chosen, Index num_experts, double rate,
                        ParameterStore& store);

}  // namespace moeloom
