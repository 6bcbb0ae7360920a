#include "moeloom/plan/cost/rebalance_cost.hpp"

#include "moeloom/moe/dispatch/wire.hpp"
#include "moeloom/plan/memory/memory_need.hpp"

#include <algorithm>
#include <cmath>

#include "cost/real.hpp"

namespace moeloom {
namespace {

std::int64_t nanoseconds(double bytes, double bandwidth) {
  return std::llround(1e9 * per(bytes, bandwidth));
}

/// An expert's, in the layer that has most of each.
ReplicaTraffic most_traffic(const std::vector<ParameterSpec>& specs, const Job& job, double products) {
  ReplicaTraffic most;
  if (specs.empty()) {
    most = {.weights = 3 * sizeof(float) * products, .trained = std::llround(3 * products)};
    if (!experts_in_node_memory(job)) most.weights_on_node = most.weights;
  }
  for (const auto& [layer, expert] : replica_traffic(specs, job))
    most = {.weights = std::max(most.weights, expert.weights),
            .weights_on_node = std::max(most.weights_on_node, expert.weights_on_node),
            .trained = std::max(most.trained, expert.trained)};
  return most;
}

}  // namespace

RebalanceRates rebalance_rates(const ModelConfig& config, const std::vector<ParameterSpec>& specs,
                               const Job& job, const MachineRates& machine) {
  const double products = real(config.hidden_size * config.moe_intermediate_size);
  const double rows_of_expert = per(real(job.tokens() * job.layout.mesh.ep * config.num_experts_per_tok),
                                    real(std::max<Index>(config.num_experts, 1)));
  const double speed = dense_flops_at(machine, std::max(rows_of_expert, 1.0)) / oversubscription(job);
  const double row = sizeof(float) * real(wire_cols(config.hidden_size, job.exchange.wire) + 1);
  const ReplicaTraffic expert = most_traffic(specs, job, products);
  const double gradients = sizeof(float) * real(expert.trained);
  const ExchangeRates links = link_rates(machine, job);
  const double on_node = links.node_bandwidth;
  const double network = links.network_bandwidth > 0
                             ? links.network_bandwidth / real(std::max<Index>(job.layout.ranks_per_node, 1))
                             : on_node;
  return {.row_products = nanoseconds(18 * products, speed),
          .on_node = {.row = nanoseconds(row, on_node),
                      .weights = nanoseconds(expert.weights_on_node, on_node),
                      .gradients = experts_in_node_memory(job) ? 0 : nanoseconds(gradients, on_node)},
          .between_nodes = {.row = nanoseconds(row, network),
                            .weights = nanoseconds(expert.weights, network),
                            .gradients = nanoseconds(gradients, network)}};
}

}  // namespace moeloom
