// What each dispatcher can do: a row a kind. Which can serve a run, and the sentence of a refusal, follow.
#pragma once

#include "moeloom/job/dispatcher_kind.hpp"

#include <span>

namespace moeloom {

/// Between whom a way has rows on a wire, where a wire dtype or a sum before it can act.
enum class OnWire { kNowhere, kBetweenNodes, kBetweenRanks };

struct DispatcherWay {
  DispatcherKind kind;
  bool crosses_nodes;      // its ranks may lie on several nodes
  bool needs_node_memory;  // its ranks open the memory of the others on their node
  OnWire rounds;           // where rows are rounded to the wire dtype
  bool sums_before_wire;   // combine fast: a token's rows of a node are summed before they cross
};

/// Every kind once, in the order in which equals are preferred.
std::span<const DispatcherWay> dispatcher_ways();
const DispatcherWay& way_of(DispatcherKind kind);

}  // namespace moeloom
