// A block of experts with the parameters that a specification names.
#pragma once

#include "model/parts/layer_spec.hpp"
#include "model/parts/parameters.hpp"
#include "moe/moe_layer.hpp"

namespace moeloom {

/// `layer`: its number. The store must outlive it.
MoeLayer moe_of(const MoeSpec& spec, const ParameterStore& store, Index layer,
                const RoutingSettings& routing);

}  // namespace moeloom
