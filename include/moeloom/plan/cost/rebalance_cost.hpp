// The constants by which every rank decides on replicas of experts (moe/rebalance/replica_cost.hpp).
#pragma once

#include "moeloom/model/parts/parameters.hpp"
#include "moeloom/moe/rebalance/replica_cost.hpp"
#include "moeloom/plan/cost/layer_exchange.hpp"

namespace moeloom {

/// 18 D F operations a row at the speed of dense products of its expert's expected rows; at a rank's share of
/// the link a row's bytes on the wire with a number beside it, and of the layer that has most the bytes of an
/// expert's weights as they are stored, and fp32 gradients of what is trained. Inside a node's memory weights
/// and gradients cost nothing: products read the one and write the other in any case. Nothing is counted as
/// hidden but what the placement's cost hides; messages cost nothing beside their bytes.
///
/// specs: those of a rank; none: weights in fp32, all of them trained.
RebalanceRates rebalance_rates(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                               const Job& job, const MachineRates& machine);

}  // namespace moeloom
