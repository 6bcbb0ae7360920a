#include "moeloom/plan/decide/dispatcher_choice.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/plan/cost/exchange_cost.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>
#include <vector>

namespace moeloom {
namespace {

/// Below it MPI's exchange of small messages is level or faster: a rank waits three times in `shared`.
constexpr Index kLeastSharedBytes = 4096;
/// A share of rows saved that pays for telling the other node where each copy lands.
constexpr double kWorthPlanning = 0.95;

std::optional<std::string> why_not(DispatcherKind kind, const DispatcherFacts& facts) {
  if (kind != DispatcherKind::kShared && kind != DispatcherKind::kHierarchical) return std::nullopt;
  if (kind == DispatcherKind::kShared && facts.ep_nodes > 1)
    return "the " + std::to_string(facts.ep_ranks) + " ranks of ep lie on " + std::to_string(facts.ep_nodes) +
           " nodes, which share no memory";
  if (!facts.no_node_memory.empty()) return "memory cannot be shared: " + facts.no_node_memory;
  return std::nullopt;
}

std::string two_decimals(double value) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(2) << value;
  return text.str();
}

/// Fewer rows cross, or fewer messages do the same.
DispatcherChoice choose_between_nodes(const DispatcherFacts& facts, CombineMode mode) {
  const auto slots = static_cast<double>(facts.top_k);
  const double once_a_slot = slots - slots / static_cast<double>(facts.ep_nodes);
  const double out = crossings_out(facts.num_experts, facts.top_k, facts.ep_nodes);
  const double back = crossings_back(facts.num_experts, facts.top_k, facts.ep_nodes, mode);
  const std::string where = "the " + std::to_string(facts.ep_ranks) + " ranks of ep lie on " +
                            std::to_string(facts.ep_nodes) + " nodes";
  const std::string rows = two_decimals(out) + " rows out, once to a node, and " + two_decimals(back) +
                           " back instead of " + two_decimals(once_a_slot) + " each way";
  if (facts.ep_ranks == facts.ep_nodes && out + back > kWorthPlanning * 2 * once_a_slot)
    return {DispatcherKind::kAlltoall, where + ", one each, and a token would cross as " + rows};
  return {DispatcherKind::kHierarchical, where + ": a token crosses as " + rows};
}

DispatcherChoice choose_without_memory(const DispatcherFacts& facts) {
  const std::string why = "memory cannot be shared: " + facts.no_node_memory;
  if (facts.top_k <= facts.ep_ranks) return {DispatcherKind::kAlltoall, why};
  return {DispatcherKind::kAllgather, why + "; a token has " + std::to_string(facts.top_k) +
                                          " experts and there are only " + std::to_string(facts.ep_ranks) +
                                          " ranks to send it to"};
}

DispatcherChoice decide_auto(const DispatcherFacts& facts, CombineMode mode) {
  const std::string bytes = std::to_string(facts.bytes_per_pair) + " bytes a pair of ranks";
  if (facts.ep_ranks == 1) return {DispatcherKind::kAlltoall, "ep = 1: rows stay on their rank"};
  if (!facts.no_node_memory.empty()) return choose_without_memory(facts);
  if (facts.ep_nodes > 1) return choose_between_nodes(facts, mode);
  if (facts.bytes_per_pair < kLeastSharedBytes)
    return {DispatcherKind::kAlltoall,
            bytes + " are below " + std::to_string(kLeastSharedBytes) + ", where MPI is as fast"};
  return {DispatcherKind::kShared,
          "the " + std::to_string(facts.ep_ranks) + " ranks of ep share their node's memory, " + bytes};
}

std::optional<std::string> why_no_pool(std::optional<DispatcherKind> request, const DispatcherFacts& facts) {
  if (facts.ep_ranks == 1) return "has nobody to share experts with: ep = 1; choose a larger --ep";
  if (facts.ep_ranks == facts.ep_nodes)
    return "has nobody to share experts with: the " + std::to_string(facts.ep_ranks) +
           " ranks of ep lie on as many nodes; start more ranks a node";
  if (!facts.no_node_memory.empty())
    return "cannot run: memory cannot be shared: " + facts.no_node_memory +
           "; let the ranks of a node see each other in /proc";
  if (request == DispatcherKind::kAlltoall || request == DispatcherKind::kAllgather)
    return "needs rows in the node's memory, and --dispatcher " + std::string(name_of(*request)) +
           " keeps them in each rank's own; choose shared, hierarchical or auto";
  return std::nullopt;
}

/// Of the kinds whose rows other ranks can reach.
DispatcherChoice decide_for_pool(const DispatcherFacts& facts) {
  const auto kind = facts.ep_nodes == 1 ? DispatcherKind::kShared : DispatcherKind::kHierarchical;
  return {kind, "--node-pool needs rows in the node's memory, and the " + std::to_string(facts.ep_ranks) +
                    " ranks of ep lie on " + std::to_string(facts.ep_nodes) +
                    (facts.ep_nodes == 1 ? " node" : " nodes")};
}

DispatcherChoice decide_kind(std::optional<DispatcherKind> request, const DispatcherFacts& facts,
                             CombineMode mode) {
  if (facts.node_pool && facts.in_chunks && facts.ep_ranks > 1)
    throw ConfigError(
        {"--node-pool keeps rows in the node's memory, where they do not travel in the chunks of --overlap; "
         "choose --overlap off, or --node-pool off"});
  if (facts.node_pool) {
    if (const auto reason = why_no_pool(request, facts))
      throw ConfigError({"--node-pool " + *reason + ", or choose --node-pool off"});
    if (!request) return decide_for_pool(facts);
  }
  if (!request && facts.in_chunks && facts.ep_ranks > 1)
    return {DispatcherKind::kAlltoall,
            "--overlap needs rows that travel in chunks, which alltoall alone sends"};
  if (!request) return decide_auto(facts, mode);
  const auto reason = why_not(*request, facts);
  if (!reason) return {*request, "--dispatcher " + std::string(name_of(*request))};
  throw ConfigError({"--dispatcher " + std::string(name_of(*request)) + " cannot run: " + *reason +
                     "; choose alltoall or auto"});
}

/// What of `wire` a kind has no use for; empty: it has for all.
std::vector<std::string> idle_settings(DispatcherKind kind, const DispatcherFacts& facts,
                                       const WireSettings& wire) {
  std::vector<std::string> idle;
  if (wire.dtype == WireDType::kBf16) {
    if (kind == DispatcherKind::kShared)
      idle.emplace_back("--wire-dtype bf16 rounds nothing: rows in the node's memory stay fp32");
    else if (facts.ep_ranks == 1)
      idle.emplace_back("--wire-dtype bf16 rounds nothing: no row travels");
    else if (kind == DispatcherKind::kHierarchical && facts.ep_nodes == 1)
      idle.emplace_back("--wire-dtype bf16 rounds nothing: no row leaves the node");
  }
  if (wire.combine == CombineMode::kFast && (kind != DispatcherKind::kHierarchical || facts.ep_nodes == 1))
    idle.emplace_back("--combine fast changes nothing: no sum is made before a wire");
  return idle;
}

}  // namespace

std::string_view name_of(const std::optional<DispatcherKind>& request) {
  return request ? name_of(*request) : "auto";
}

DispatcherChoice decide_dispatcher(std::optional<DispatcherKind> request, const DispatcherFacts& facts,
                                   const WireSettings& wire) {
  DispatcherChoice choice = decide_kind(request, facts, wire.combine);
  for (const std::string& idle : idle_settings(choice.kind, facts, wire)) {
    if (request && facts.ep_ranks > 1)
      throw ConfigError({choice.reason + ": " + idle + "; leave it out, or choose --dispatcher auto"});
    choice.reason += "; " + idle;
  }
  return choice;
}

}  // namespace moeloom
