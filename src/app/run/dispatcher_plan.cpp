#include "run/dispatcher_plan.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

/// The most nodes that any ep row lies on.
Index nodes_of_ep(const Mesh& mesh, Index pretended) {
  const Index nodes = find_nodes(mesh.ep(), pretended).nodes();
  return static_cast<Index>(mesh.world().all_max(static_cast<double>(nodes)));
}

/// Whose memory is opened before it is known whether it can be; none for ways that need none.
std::optional<DispatcherKind> kind_to_try(std::optional<DispatcherKind> request, Index nodes) {
  if (!request) return nodes == 1 ? DispatcherKind::kShared : DispatcherKind::kHierarchical;
  if (request == DispatcherKind::kHierarchical || (request == DispatcherKind::kShared && nodes == 1))
    return request;
  return std::nullopt;
}

/// Opens what `kind` needs; why not, where any ep row could not. Collective over the world.
std::string try_open(DispatcherKind kind, const WireSettings& wire, const Mesh& mesh, Index num_experts,
                     DispatcherSettings& settings) {
  std::string error;
  try {
    settings = open_dispatcher(kind, mesh.ep(), num_experts, wire);
  } catch (const AgreedError& refused) {
    error = refused.what();
  }
  for (const std::string& each : mesh.world().all_gather_text(error))
    if (!each.empty()) return each;
  return {};
}

/// "off" or the number of chunks.
std::string overlap_text(const OverlapChoice& choice) {
  return choice.chunks == 0 ? "off" : std::to_string(choice.chunks);
}

}  // namespace

DispatcherPlan plan_dispatcher(const DispatcherRequest& request, const ModelConfig& config, const Mesh& mesh,
                               const LayerWork& work) {
  if (!config.has_experts()) {
    if (request.node_pool)
      throw AgreedError(
          "--node-pool has nothing to share: this model has no experts; choose --node-pool off");
    return {{DispatcherKind::kAlltoall, "this model has no experts"}, {0, "this model has no experts"}, {}};
  }
  DispatcherPlan plan;
  DispatcherFacts facts;
  facts.ep_ranks = mesh.ep().size();
  facts.ep_nodes = nodes_of_ep(mesh, request.wire.pretended_nodes);
  facts.num_experts = config.num_experts;
  facts.top_k = config.num_experts_per_tok;
  facts.bytes_per_pair = work.tokens * config.num_experts_per_tok * config.hidden_size *
                         static_cast<Index>(sizeof(float)) / facts.ep_ranks;
  facts.node_pool = request.node_pool;
  facts.in_chunks = request.overlap.value_or(0) > 0;
  const auto on_the_wire = [&](Index bytes) {  // of fp32 rows
    return bytes / config.hidden_size * wire_cols(config.hidden_size, request.wire.dtype);
  };
  // Only alltoall moves chunks, and it needs no memory.
  const std::optional<DispatcherKind> tried =
      !request.kind && facts.in_chunks ? std::nullopt : kind_to_try(request.kind, facts.ep_nodes);
  if (tried) facts.no_node_memory = try_open(*tried, request.wire, mesh, config.num_experts, plan.settings);
  agree(mesh.world(), [&] {
    plan.choice = decide_dispatcher(request.kind, facts, request.wire);
    plan.overlap = decide_overlap(request.overlap, {.dispatcher = plan.choice.kind,
                                                    .ep_ranks = facts.ep_ranks,
                                                    .ep_nodes = facts.ep_nodes,
                                                    .experts = facts.num_experts / facts.ep_ranks,
                                                    .bytes_per_pair = on_the_wire(facts.bytes_per_pair),
                                                    .products_seconds = work.products_seconds});
  });
  if (plan.choice.kind != tried)
    plan.settings = open_dispatcher(plan.choice.kind, mesh.ep(), config.num_experts, request.wire);
  plan.settings.chunks = plan.overlap.chunks;
  plan.settings.node_pool = request.node_pool;
  return plan;
}

Event event_of(const DispatcherPlan& plan) {
  return Event()
      .with("dispatcher", name_of(plan.choice.kind))
      .with("reason", plan.choice.reason)
      .with("node_pool", plan.settings.node_pool);
}

Event event_of(const OverlapChoice& choice) {
  return Event().with("overlap", overlap_text(choice)).with("reason", choice.reason);
}

std::vector<std::pair<std::string, std::string>> facts_of(const DispatcherPlan& plan) {
  return {{"dispatcher", std::string(name_of(plan.choice.kind)) + ": " + plan.choice.reason},
          {"overlap", overlap_text(plan.overlap) + ": " + plan.overlap.reason}};
}

}  // namespace moeloom
