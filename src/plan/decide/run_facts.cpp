#include "plan/decide/run_facts.hpp"

#include "comm/transport.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {
namespace {

/// The first reason that a rank of the world gives, with its number where it is not rank 0; empty: none.
std::string first_reason(const Communicator& world, const std::string& mine) {
  const std::vector<std::string> reasons = world.all_gather_text(mine);
  for (std::size_t rank = 0; rank < reasons.size(); ++rank)
    if (!reasons[rank].empty())
      return (rank > 0 ? "rank " + std::to_string(rank) + ": " : "") + reasons[rank];
  return {};
}

/// Why the ranks of an ep row on one node cannot open each other's memory, for any rank of all: tried with a
/// little of it.
std::string why_no_node_memory(const Communicator& ep, const NodeMap& nodes, const Communicator& all) {
  const Communicator node = ep.split(static_cast<int>(nodes.node_of[at(ep.rank())]), ep.rank());
  std::string reason;
  try {
    NodeMemory(node, 64);
  } catch (const AgreedError& refused) {
    reason = refused.what();
  }
  return first_reason(all, reason);
}

/// What of a layout is the same on all ranks: the fewest threads of any, so that what is decided by them is
/// too.
void complete(Layout& layout, Index ep_nodes, const Communicator& all) {
  if (layout.pretended_nodes > 1)
    layout.ranks_per_node = ceil_div(layout.ranks_per_node, layout.pretended_nodes);
  layout.threads = -static_cast<Index>(all.all_max(-static_cast<double>(layout.threads)));
  layout.processors_per_node = layout.ranks_per_node * layout.threads;
  layout.tcp = tcp_between_nodes(all);
  // A row that lies unevenly on its nodes: as one of more nodes with as many ranks each.
  layout.ep_per_node = std::gcd(layout.mesh.ep, std::max<Index>(layout.mesh.ep / ep_nodes, 1));
}

}  // namespace

RunFacts find_run_facts(const ModelConfig& model, const Mesh& mesh, Job work) {
  const Index pretended_nodes = work.layout.pretended_nodes;
  const NodeMap nodes = find_nodes(mesh.ep(), pretended_nodes);
  const Communicator& world = mesh.world();
  work.layout.mesh = mesh.shape();
  work.layout.ranks_per_node = static_cast<Index>(world.all_max(static_cast<double>(mesh.node().size())));
  const auto ep_nodes = static_cast<Index>(world.all_max(static_cast<double>(nodes.nodes())));
  complete(work.layout, ep_nodes, world);
  RunFacts facts = facts_of_job(model, work);
  facts.ep_nodes = ep_nodes;
  if (mesh.ep().size() > 1 && model.has_experts())
    facts.no_node_memory = why_no_node_memory(mesh.ep(), nodes, world);
  facts.no_bf16 = first_reason(world, std::string(why_no_bf16()));
  facts.bf16_unit = static_cast<Bf16Unit>(-world.all_max(-static_cast<double>(best_bf16_unit())));
  facts.avx512 = world.all_max(cpu_has_avx512() ? 0 : 1) == 0;
  return facts;
}

RunFacts find_row_facts(const Communicator& ep, Layout layout) {
  const NodeMap nodes = find_nodes(ep, layout.pretended_nodes);
  layout.mesh = {.dp = 1, .ep = ep.size()};
  complete(layout, nodes.nodes(), ep);
  RunFacts facts = facts_of_job({}, {.layout = layout});
  facts.ep_nodes = nodes.nodes();
  if (ep.size() > 1) facts.no_node_memory = why_no_node_memory(ep, nodes, ep);
  return facts;
}

RunFacts facts_of_job(const ModelConfig& model, const Job& work) {
  RunFacts facts{
      .model = model, .job = work, .no_bf16 = std::string(why_no_bf16()), .avx512 = cpu_has_avx512()};
  facts.ep_nodes = work.layout.mesh.ep / work.layout.ep_on_node();
  facts.rates = built_in_rates(work.layout.threads);
  return facts;
}

DispatcherSettings open_dispatcher(const RunDecision& decision, const Mesh& mesh, Index num_experts) {
  if (num_experts == 0) return {};
  const Exchange& exchange = decision.job.exchange;
  DispatcherSettings settings;
  std::string refusal;
  try {
    settings = open_dispatcher(exchange.dispatcher, mesh.ep(), num_experts,
                               {exchange.combine, exchange.wire, decision.job.layout.pretended_nodes});
  } catch (const AgreedError& refused) {  // by the ranks of one ep row
    refusal = refused.what();
  }
  refusal = first_reason(mesh.world(), refusal);
  if (!refusal.empty()) throw AgreedError(refusal);
  settings.chunks = exchange.chunks;
  settings.rebalance = decision.rates;
  return settings;
}

}  // namespace moeloom
