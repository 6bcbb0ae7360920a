#include "moeloom/moe/dispatcher_choice.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {
namespace {

/// Below it MPI's exchange of small messages is level or faster: a rank waits three times in `shared`.
constexpr Index kLeastSharedBytes = 4096;

std::optional<std::string> why_not_shared(const DispatcherFacts& facts) {
  if (facts.ep_nodes > 1)
    return "the " + std::to_string(facts.ep_ranks) + " ranks of ep lie on " + std::to_string(facts.ep_nodes) +
           " nodes, which share no memory";
  if (!facts.no_node_memory.empty()) return "memory cannot be shared: " + facts.no_node_memory;
  return std::nullopt;
}

DispatcherChoice decide_auto(const DispatcherFacts& facts) {
  const std::string bytes = std::to_string(facts.bytes_per_pair) + " bytes a pair of ranks";
  if (facts.ep_ranks == 1) return {DispatcherKind::kAlltoall, "ep = 1: rows stay on their rank"};
  if (const auto reason = why_not_shared(facts)) return {DispatcherKind::kAlltoall, *reason};
  if (facts.bytes_per_pair < kLeastSharedBytes)
    return {DispatcherKind::kAlltoall,
            bytes + " are below " + std::to_string(kLeastSharedBytes) + ", where MPI is as fast"};
  return {DispatcherKind::kShared,
          "the " + std::to_string(facts.ep_ranks) + " ranks of ep share their node's memory, " + bytes};
}

}  // namespace

std::string_view name_of(DispatcherKind kind) {
  constexpr std::array<std::string_view, kDispatcherKinds.size()> names = {"auto", "alltoall", "shared"};
  return names[static_cast<std::size_t>(kind)];
}

std::optional<DispatcherKind> dispatcher_kind_from_text(std::string_view text) {
  for (const DispatcherKind kind : kDispatcherKinds)
    if (name_of(kind) == text) return kind;
  return std::nullopt;
}

DispatcherChoice decide_dispatcher(DispatcherKind request, const DispatcherFacts& facts) {
  if (request == DispatcherKind::kAuto) return decide_auto(facts);
  if (request == DispatcherKind::kShared)
    if (const auto reason = why_not_shared(facts))
      throw ConfigError({"--dispatcher shared cannot run: " + *reason + "; choose alltoall or auto"});
  return {request, "--dispatcher " + std::string(name_of(request))};
}

}  // namespace moeloom
