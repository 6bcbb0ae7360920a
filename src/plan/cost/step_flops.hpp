// The arithmetic of a step over all ranks, which no mesh changes: products forward and both gradients, and
// the mixing of attention. What shares of a machine's peak are measured against.
#pragma once

#include "moeloom/model/hf/config.hpp"

namespace moeloom {

/// Of one sparse layer: 18 T K D F of its experts and 6 T E D of its router; shared experts are left out.
double moe_product_flops(const ModelConfig& config, Index tokens);

/// Of the whole training step without its update: mixers, MLPs, experts, routers and head.
double step_flops(const ModelConfig& config, Index tokens, Index sequence_length);

}  // namespace moeloom
