#include "moeloom/plan/cost/rebalance_cost.hpp"

#include "moeloom/moe/dispatch/wire.hpp"

#include <algorithm>
#include <cmath>

#include "cost/real.hpp"

namespace moeloom {
namespace {

std::int64_t nanoseconds(double seconds) {
  return std::llround(1e9 * seconds);
}

CrossingNanoseconds crossing(double row_bytes, double weight_bytes, double bandwidth) {
  return {nanoseconds(per(row_bytes, bandwidth)), nanoseconds(per(weight_bytes, bandwidth))};
}

}  // namespace

RebalanceRates rebalance_rates(const ModelConfig& config, const Job& job, const MachineRates& machine) {
  const double products = real(config.hidden_size * config.moe_intermediate_size);
  const double rows_of_expert = per(real(job.tokens() * job.layout.mesh.ep * config.num_experts_per_tok),
                                    real(std::max<Index>(config.num_experts, 1)));
  const double speed = dense_flops_at(machine, std::max(rows_of_expert, 1.0)) / oversubscription(job);
  const double row_bytes = sizeof(float) * real(wire_cols(config.hidden_size, job.exchange.wire) + 1);
  const double weight_bytes = 3 * sizeof(float) * products;
  const ExchangeRates links = link_rates(machine, job);
  const double network = links.network_bandwidth / real(std::max<Index>(job.layout.ranks_per_node, 1));
  return {.row_products = nanoseconds(per(18 * products, speed)),
          .on_node = crossing(row_bytes, weight_bytes, links.node_bandwidth),
          .between_nodes = crossing(row_bytes, weight_bytes, network > 0 ? network : links.node_bandwidth),
          .sums = job.batch.exact > 0 ? 2 : 1};
}

}  // namespace moeloom
