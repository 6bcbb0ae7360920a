#include "plan/cost/exchange_case.hpp"

#include <algorithm>

namespace moeloom {

double oversubscription(const Job& job) {
  return std::max(1.0, static_cast<double>(job.layout.ranks_per_node * job.layout.threads) /
                           static_cast<double>(job.layout.processors_per_node));
}

ExchangeCase exchange_case(const ModelConfig& config, const Job& job) {
  return {.tokens = job.tokens(),
          .hidden = config.hidden_size,
          .top_k = config.num_experts_per_tok,
          .num_experts = std::max<Index>(config.num_experts, 1),
          .ep = job.layout.mesh.ep,
          .ep_on_node = job.layout.ep_on_node(),
          .combine = job.exchange.combine,
          .wire = job.exchange.wire};
}

}  // namespace moeloom
