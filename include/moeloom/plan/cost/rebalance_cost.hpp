// The constants by which every rank decides on replicas of experts (moe/rebalance/replica_cost.hpp).
#pragma once

#include "moeloom/moe/rebalance/replica_cost.hpp"
#include "moeloom/plan/cost/layer_exchange.hpp"

namespace moeloom {

/// 18 D F operations a row at the speed of dense products of its expert's expected rows; a row's bytes on the
/// wire with a number beside it, and 12 D F bytes of weights, at a rank's share of the link; gradients are
/// twice that where sums are exact. Nothing is counted as hidden but what the placement's cost hides;
/// messages cost nothing beside their bytes.
RebalanceRates rebalance_rates(const ModelConfig& config, const Job& job, const MachineRates& machine);

}  // namespace moeloom
