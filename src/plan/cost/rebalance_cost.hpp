// The constants by which every rank decides on replicas of experts (moe/rebalance/replica_cost.hpp), and what
// those would gain of uneven rows that are foreseen.
#pragma once

#include "model/parts/parameters.hpp"
#include "moe/rebalance/replica_cost.hpp"
#include "plan/cost/layer_exchange.hpp"

#include <optional>

namespace moeloom {

/// 18 D F operations a row at the speed of dense products of its expert's expected rows; at a rank's share of
/// the link a row's bytes on the wire with a number beside it, and of the layer that has most the bytes of an
/// expert's weights as they are stored, and gradients of what is trained, in fp32, or integers of eight bytes
/// where sums are exact. Inside a node's memory weights and gradients cost nothing: products read the one and
/// write the other in any case. Nothing is counted as hidden but what the placement's cost hides; messages
/// cost nothing beside their bytes.
///
/// specs: those of a rank; none: weights in fp32, all of them trained.
RebalanceRates rebalance_rates(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                               const Job& job, const MachineRates& machine);

/// Of a step, all sparse layers and micro-batches: what uneven rows cost over even ones, and what replicas
/// save; more than that where rows then need not travel.
struct RebalanceGain {
  double uneven_seconds = 0;
  double saved_seconds = 0;
};

/// By job.exchange.expert_rows, every rank's tokens choosing alike; of many lists some are taken.
RebalanceGain rebalance_gain(const ModelConfig& config, const Job& job, const RebalanceRates& rates);

/// The least rows of one expert, over the mean, from which a replica pays while all others have as many as
/// each other; to 1 %. None: it never does.
std::optional<double> paying_load(const ModelConfig& config, const Job& job, const RebalanceRates& rates);

}  // namespace moeloom
