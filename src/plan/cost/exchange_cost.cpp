#include "plan/cost/exchange_cost.hpp"

#include "moe/dispatch/crossing_plan.hpp"
#include "moe/dispatch/wire.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <optional>

namespace moeloom {
namespace {

constexpr double kFloat = sizeof(float);
constexpr double kCount = 8;

double token_bytes(const ExchangeCase& e) {
  return static_cast<double>(e.tokens * e.hidden) * kFloat;
}

double slots_bytes(const ExchangeCase& e) {
  return token_bytes(e) * static_cast<double>(e.top_k);
}

/// Bytes of a row on the wire over those in memory.
double wire_share(const ExchangeCase& e) {
  return e.hidden == 0 ? 1.0
                       : static_cast<double>(wire_cols(e.hidden, e.wire)) / static_cast<double>(e.hidden);
}

Index nodes_of(const ExchangeCase& e) {
  return e.ep / e.ep_on_node;
}

/// Sent from rank to rank: `bytes` in equal parts to every rank of the row, this one among them.
ExchangeVolume sent_to_all(const ExchangeCase& e, double bytes) {
  bytes *= wire_share(e);
  const auto ranks = static_cast<double>(e.ep);
  const auto near = static_cast<double>(e.ep_on_node);
  return {.node_bytes = bytes * (near - 1) / ranks,
          .network_bytes = bytes * (ranks - near) / ranks,
          .node_messages = near - 1,
          .network_messages = nodes_of(e) > 1 ? 1.0 : 0.0};
}

ExchangeVolume alltoall_volume(const ExchangeCase& e) {
  ExchangeVolume volume = sent_to_all(e, slots_bytes(e));
  volume.copied_bytes = 4 * slots_bytes(e);
  return volume;
}

ExchangeVolume shared_volume(const ExchangeCase& e) {
  return {.copied_bytes = token_bytes(e) + slots_bytes(e), .meetings = 2};
}

/// Of `groups` equal ones, those that are not a token's own.
double elsewhere(Index groups) {
  return 1 - 1 / static_cast<double>(groups);
}

/// Rows that cross are written into a message by one rank and read from it by another.
ExchangeVolume crossing_volume(const ExchangeCase& e, double crossing_rows, double copied_bytes) {
  const double crossing = crossing_rows * token_bytes(e);
  return {.network_bytes = crossing * wire_share(e),
          .network_messages = nodes_of(e) > 1 ? 1.0 : 0.0,
          .copied_bytes = copied_bytes + 2 * crossing,
          .meetings = 2};
}

ExchangeVolume hierarchical_dispatch(const ExchangeCase& e) {
  const double read = groups_visited(e.num_experts, e.top_k, nodes_of(e)) * token_bytes(e);
  return crossing_volume(e, crossings_out(e.num_experts, e.top_k, nodes_of(e)), read + slots_bytes(e));
}

ExchangeVolume hierarchical_combine(const ExchangeCase& e) {
  return crossing_volume(e, crossings_back(e.num_experts, e.top_k, nodes_of(e), e.combine),
                         slots_bytes(e) + token_bytes(e));
}

struct Directions {
  ExchangeVolume (*out)(const ExchangeCase&);
  ExchangeVolume (*back)(const ExchangeCase&);
};
const Directions& directions_of(DispatcherKind kind) {
  static constexpr std::array<Directions, kDispatcherKinds.size()> all = {
      {{alltoall_volume, alltoall_volume},
       {shared_volume, shared_volume},
       {hierarchical_dispatch, hierarchical_combine}}};
  return all[static_cast<std::size_t>(kind)];
}

/// Of ep = 1, whichever way: rows only change places.
std::optional<ExchangeVolume> alone(const ExchangeCase& e) {
  require(e.ep >= 1 && e.ep_on_node >= 1 && e.ep % e.ep_on_node == 0, "an ep row lies evenly on its nodes");
  if (e.ep > 1) return std::nullopt;
  return ExchangeVolume{.copied_bytes = 2 * slots_bytes(e)};
}

double counts_bytes(const ExchangeCase& e, Index counts_to_each) {
  return kCount * static_cast<double>(counts_to_each * (e.ep - 1));
}

}  // namespace

double groups_visited(Index num_experts, Index top_k, Index groups) {
  require(groups >= 1 && top_k >= 0 && top_k <= num_experts, "groups_visited: K of E experts, in groups");
  const double each = static_cast<double>(num_experts) / static_cast<double>(groups);
  double missed = 1;  // C(E - E/G, k) / C(E, k), a factor a draw
  for (Index i = 0; i < top_k; ++i) {
    const auto left = static_cast<double>(num_experts - i);
    missed *= std::max(0.0, left - each) / left;
  }
  return static_cast<double>(groups) * (1 - missed);
}

double crossings_out(Index num_experts, Index top_k, Index nodes) {
  return groups_visited(num_experts, top_k, nodes) * elsewhere(nodes);
}

double crossings_back(Index num_experts, Index top_k, Index nodes, CombineMode mode) {
  if (mode == CombineMode::kFast) return crossings_out(num_experts, top_k, nodes);
  const double on_a_node = static_cast<double>(num_experts) / static_cast<double>(nodes);
  double rows = static_cast<double>(top_k);
  double all_on_one = 1;  // P(i + 1)
  for (Index i = 1; i < top_k; ++i) {
    const auto drawn = static_cast<double>(i);
    all_on_one *= std::max(0.0, on_a_node - drawn) / (static_cast<double>(num_experts) - drawn);
    rows -= all_on_one;
  }
  return rows * elsewhere(nodes);
}

ExchangeVolume dispatch_volume(DispatcherKind kind, const ExchangeCase& e) {
  if (const auto volume = alone(e)) return *volume;
  return directions_of(kind).out(e);
}

ExchangeVolume combine_volume(DispatcherKind kind, const ExchangeCase& e) {
  if (const auto volume = alone(e)) return *volume;
  return directions_of(kind).back(e);
}

double planning_bytes(DispatcherKind kind, const ExchangeCase& e) {
  const double even_counts = counts_bytes(e, ceil_div(e.num_experts, e.ep) + 1);  // and their sum
  const auto slots = static_cast<double>(e.tokens * e.top_k);
  switch (kind) {
    case DispatcherKind::kAlltoall:
      return even_counts;
    case DispatcherKind::kShared:
      return 0;
    case DispatcherKind::kHierarchical:
      if (nodes_of(e) == 1) return 0;  // as shared
      return even_counts + counts_bytes(e, 1) + counts_bytes(e, ceil_div(e.num_experts, e.ep)) +
             sizeof(CrossingCopy) * slots * elsewhere(nodes_of(e));
  }
  return 0;
}

double scalar_bytes(DispatcherKind kind, const ExchangeCase& e) {
  if (kind == DispatcherKind::kShared) return 0;
  const Index groups = kind == DispatcherKind::kHierarchical ? nodes_of(e) : e.ep;
  return kFloat * static_cast<double>(e.tokens * e.top_k) * elsewhere(groups);
}

double exchange_seconds(const ExchangeVolume& v, const ExchangeRates& r, Index sharers) {
  const auto cost = [](double amount, double rate) { return amount == 0 ? 0.0 : amount / rate; };
  return v.node_messages * r.node_message_seconds + v.network_messages * r.network_message_seconds +
         cost(v.node_bytes, r.node_bandwidth) +
         cost(v.network_bytes * static_cast<double>(sharers), r.network_bandwidth) +
         cost(v.copied_bytes, r.copy_bandwidth) + v.meetings * r.meeting_seconds;
}

}  // namespace moeloom
