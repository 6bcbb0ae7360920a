#include "moeloom/plan/cost/step_case.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {

double oversubscription(const StepCase& step) {
  return std::max(1.0, static_cast<double>(step.ranks_per_node * step.threads) /
                           static_cast<double>(step.processors_per_node));
}

Index ep_on_node(const StepCase& step) {
  if (step.ep_per_node > 0) return step.ep_per_node;
  const MeshShape& mesh = step.mesh;
  const Index apart = mesh.order.back() == "ep" ? 1 : mesh.dp;
  // A row that begins in the middle of a node lies on more nodes: then as the worst of them.
  return std::gcd(mesh.ep, std::max<Index>(step.ranks_per_node / apart, 1));
}

ExchangeCase exchange_case(const ModelConfig& config, const StepCase& step) {
  return {.tokens = step.tokens,
          .hidden = config.hidden_size,
          .top_k = config.num_experts_per_tok,
          .num_experts = std::max<Index>(config.num_experts, 1),
          .ep = step.mesh.ep,
          .ep_on_node = ep_on_node(step),
          .combine = step.combine,
          .wire = step.wire,
          .tcp = step.tcp};
}

}  // namespace moeloom
