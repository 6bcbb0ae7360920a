#include "plan/cost/rebalance_cost.hpp"

#include "moe/dispatch/wire.hpp"
#include "moe/rebalance/replica_plan.hpp"
#include "plan/cost/expert_load.hpp"
#include "plan/memory/memory_need.hpp"
#include "train/routing/routing_recorder.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cost/real.hpp"

namespace moeloom {
namespace {

constexpr Index kMostLists = 64;  // large meshes take milliseconds for each

// Of a row and of an expert, whatever the rate is: plans add them up over many.
constexpr double kMostOfRow = 1e10, kMostOfExpert = 1e14;

std::int64_t nanoseconds(double bytes, double bandwidth, double most) {
  return std::llround(std::min(1e9 * per(bytes, bandwidth), most));
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

/// Of a layer and micro-batch.
ReplicaPlan plan_of(const ModelConfig& config, const Job& job, std::span<const double> expert_rows,
                    const RebalanceRates& rates) {
  const Index ep = job.layout.mesh.ep;
  const double choices = real(job.tokens() * config.num_experts_per_tok);
  const double all = std::reduce(expert_rows.begin(), expert_rows.end());
  SourceCounts counts{ep, config.num_experts, {}};
  std::vector<Index> node_of;
  for (Index source = 0; source < ep; ++source) {
    node_of.push_back(source / job.layout.ep_on_node());
    for (const double rows : expert_rows) counts.rows.push_back(std::llround(per(choices * rows, all)));
  }
  return plan_replicas(std::move(counts), rates, node_of);
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
  const double number = job.batch.exact > 0 ? sizeof(std::int64_t) : sizeof(float);
  const double gradients = number * real(expert.trained);
  const ExchangeRates links = link_rates(machine, job);
  const double on_node = links.node_bandwidth;
  const double network = links.network_bandwidth > 0
                             ? links.network_bandwidth / real(std::max<Index>(job.layout.ranks_per_node, 1))
                             : on_node;
  return {.row_products = nanoseconds(18 * products, speed, kMostOfRow),
          .on_node = {.row = nanoseconds(row, on_node, kMostOfRow),
                      .weights = nanoseconds(expert.weights_on_node, on_node, kMostOfExpert),
                      .gradients =
                          experts_in_node_memory(job) ? 0 : nanoseconds(gradients, on_node, kMostOfExpert)},
          .between_nodes = {.row = nanoseconds(row, network, kMostOfRow),
                            .weights = nanoseconds(expert.weights, network, kMostOfExpert),
                            .gradients = nanoseconds(gradients, network, kMostOfExpert)}};
}

RebalanceGain rebalance_gain(const ModelConfig& config, const Job& job, const RebalanceRates& rates) {
  const auto& lists = job.exchange.expert_rows;
  const Index stride = std::max<Index>(ceil_div(std::ssize(lists), kMostLists), 1);
  double uneven = 0, saved = 0, taken = 0;
  for (Index i = 0; i < std::ssize(lists); i += stride, ++taken) {
    const ReplicaPlan plan = plan_of(config, job, lists[at(i)], rates);
    uneven += real(plan.before.total() - plan.before.even);
    saved += real(plan.before.total() - plan.after.total());
  }
  const double layers = real(std::ssize(sparse_layers_of(config)) * job.batch.micro_batches);
  return {per(1e-9 * layers * uneven, taken), per(1e-9 * layers * saved, taken)};
}

std::optional<double> paying_load(const ModelConfig& config, const Job& job, const RebalanceRates& rates) {
  const auto pays = [&](double load) {
    return plan_of(config, job, rows_with_fullest(config.num_experts, load), rates).moves();
  };
  double least = 1, most = per(real(config.num_experts), real(config.num_experts_per_tok));
  if (!pays(most)) return std::nullopt;
  while (most > 1.01 * least) {
    const double middle = std::sqrt(least * most);
    (pays(middle) ? most : least) = middle;
  }
  return most;
}

}  // namespace moeloom
