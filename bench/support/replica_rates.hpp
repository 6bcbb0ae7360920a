// By what `moeloom train` would decide on replicas of experts.
#pragma once

#include "moeloom/comm/mesh.hpp"
#include "plan/cost/rebalance_cost.hpp"
#include "plan/rates/built_in_rates.hpp"

namespace moeloom::bench {

/// Of the network that was given; 0: of the built-in rate. Collective over the world.
inline RebalanceRates replica_rates(const ModelConfig& model, const Mesh& mesh, DispatcherKind dispatcher,
                                    const BatchShape& batch, int threads, double network_bytes_per_second) {
  const auto on_node = static_cast<Index>(mesh.world().all_max(static_cast<double>(mesh.node().size())));
  const Job job{.batch = batch,
                .exchange = {.dispatcher = dispatcher},
                .layout = {.mesh = mesh.shape(),
                           .ranks_per_node = on_node,
                           .processors_per_node = on_node * threads,
                           .threads = threads}};
  MachineRates machine = built_in_rates(threads);
  if (network_bytes_per_second > 0) machine.network_bytes_per_second = network_bytes_per_second;
  return rebalance_rates(model, {}, job, machine);
}

}  // namespace moeloom::bench
