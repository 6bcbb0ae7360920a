#include "moeloom/plan/cost/exchange_case.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {

double oversubscription(const Job& job) {
  return std::max(1.0, static_cast<double>(job.layout.ranks_per_node * job.layout.threads) /
                           static_cast<double>(job.layout.processors_per_node));
}

Index ep_on_node(const Job& job) {
  if (job.layout.ep_per_node > 0) return job.layout.ep_per_node;
  const MeshShape& mesh = job.layout.mesh;
  const Index apart = mesh.ep_is_fastest() ? 1 : mesh.dp;
  // A row that begins in the middle of a node lies on more nodes: then as the worst of them.
  return std::gcd(mesh.ep, std::max<Index>(job.layout.ranks_per_node / apart, 1));
}

ExchangeCase exchange_case(const ModelConfig& config, const Job& job) {
  return {.tokens = job.tokens(),
          .hidden = config.hidden_size,
          .top_k = config.num_experts_per_tok,
          .num_experts = std::max<Index>(config.num_experts, 1),
          .ep = job.layout.mesh.ep,
          .ep_on_node = ep_on_node(job),
          .combine = job.exchange.combine,
          .wire = job.exchange.wire,
          .tcp = job.layout.tcp};
}

}  // namespace moeloom
