// Balance without a loss: a bias an expert, added in the choice alone, that goes up where an expert is chosen
// too rarely and down where too often (Wang et al. 2024, "Auxiliary-Loss-Free Load Balancing").
#pragma once

#include "moeloom/model/parts/parameters.hpp"

#include <cstdint>
#include <span>

namespace moeloom {

enum class RouterBiasRule {
  kSign,         // by rate * sign(mean - count), as DeepSeek-V3
  kProportional  // by rate * (mean - count) / mean
};

struct RouterBiasSettings {
  double rate = 0;  // 0: biases are left alone
  RouterBiasRule rule = RouterBiasRule::kSign;
};

/// chosen [E]: how often each expert was chosen in a step, over the world. The error is compared in integers,
/// so the bias is the same on every rank and mesh. Nothing moves where nothing was chosen.
void move_router_bias(std::span<const std::int64_t> chosen, const RouterBiasSettings& settings,
                      std::span<float> bias);

/// Moves the bias of every layer that has one; chosen [layers, E].
void move_router_biases(std::span<const std::int64_t> chosen, Index num_experts,
                        const RouterBiasSettings& settings, ParameterStore& store);

}  // namespace moeloom
