// Which way rows travel, and why: a pure function of the mesh, the machine and the sizes.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/moe/dispatch/dispatcher_kind.hpp"

#include <optional>
#include <string>

namespace moeloom {

/// As it is asked for: "auto" if none is named.
std::string_view name_of(const std::optional<DispatcherKind>& request);
/// Every kind that can be asked for, auto first.
inline constexpr std::array<std::optional<DispatcherKind>, 1 + kDispatcherKinds.size()> kDispatcherRequests =
    {std::nullopt, DispatcherKind::kAlltoall, DispatcherKind::kShared, DispatcherKind::kHierarchical,
     DispatcherKind::kAllgather};

struct DispatcherFacts {
  Index ep_ranks = 1;
  Index ep_nodes = 1;               // the most nodes that the ranks of one ep row lie on
  std::string no_node_memory = {};  // why ranks cannot open each other's memory; empty: they can
  Index num_experts = 1;
  Index top_k = 1;
  Index bytes_per_pair = 0;  // expected from one rank to another in one exchange, if experts are even
  bool node_pool = false;    // asked for: rows must lie in the node's memory
  bool in_chunks = false;    // asked for: rows must travel in chunks, between which experts compute
};

struct DispatcherChoice {
  DispatcherKind kind = DispatcherKind::kAlltoall;
  std::string reason;
};

/// Pure. No request is auto: the fastest that can run, the reason carrying the facts it was chosen by, and
/// what of `wire` has nothing to act on. Throws ConfigError with the way out for a kind asked for by name
/// that cannot run, or that `wire` does not fit, and for a node pool where ranks share no memory.
DispatcherChoice decide_dispatcher(std::optional<DispatcherKind> request, const DispatcherFacts& facts,
                                   const WireSettings& wire = {});

}  // namespace moeloom
