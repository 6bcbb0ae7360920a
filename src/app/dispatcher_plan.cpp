#include "dispatcher_plan.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

/// The most nodes that any ep row lies on.
Index nodes_of_ep(const Mesh& mesh) {
  Index nodes = mesh.ep().split_by_node().rank() == 0 ? 1 : 0;  // one rank a node counts it
  mesh.ep().all_sum(std::span(&nodes, 1));
  return static_cast<Index>(mesh.world().all_max(static_cast<double>(nodes)));
}

/// Opens the memory that `shared` needs; why not, where any ep row could not. Collective over the world.
std::string try_shared(const Mesh& mesh, Index num_experts, DispatcherSettings& settings) {
  std::string error;
  try {
    settings = open_dispatcher(DispatcherKind::kShared, mesh.ep(), num_experts);
  } catch (const AgreedError& refused) {
    error = refused.what();
  }
  for (const std::string& each : mesh.world().all_gather_text(error))
    if (!each.empty()) return each;
  return {};
}

}  // namespace

DispatcherPlan plan_dispatcher(DispatcherKind request, const ModelConfig& config, const Mesh& mesh,
                               Index tokens) {
  if (!config.has_experts()) return {{DispatcherKind::kAlltoall, "this model has no experts"}, {}};
  DispatcherPlan plan;
  DispatcherFacts facts;
  facts.ep_ranks = mesh.ep().size();
  facts.ep_nodes = nodes_of_ep(mesh);
  facts.bytes_per_pair = tokens * config.num_experts_per_tok * config.hidden_size *
                         static_cast<Index>(sizeof(float)) / facts.ep_ranks;
  DispatcherSettings shared;
  if (request != DispatcherKind::kAlltoall && facts.ep_nodes == 1)
    facts.no_node_memory = try_shared(mesh, config.num_experts, shared);
  agree(mesh.world(), [&] { plan.choice = decide_dispatcher(request, facts); });
  if (plan.choice.kind == DispatcherKind::kShared) plan.settings = std::move(shared);
  return plan;
}

Event event_of(const DispatcherChoice& choice) {
  return Event().with("dispatcher", name_of(choice.kind)).with("reason", choice.reason);
}

}  // namespace moeloom
