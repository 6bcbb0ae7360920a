#include "moeloom/moe/exchange_cost.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

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

/// Sent from rank to rank: `bytes` in equal parts to every rank of the row, this one among them.
ExchangeVolume sent_to_all(const ExchangeCase& e, double bytes) {
  const auto ranks = static_cast<double>(e.ep);
  const auto near = static_cast<double>(e.ep_on_node);
  return {.node_bytes = bytes * (near - 1) / ranks,
          .network_bytes = bytes * (ranks - near) / ranks,
          .node_messages = near - 1,
          .network_messages = ranks - near};
}

ExchangeVolume alltoall_volume(const ExchangeCase& e) {
  ExchangeVolume volume = sent_to_all(e, slots_bytes(e));
  volume.copied_bytes = 4 * slots_bytes(e);
  return volume;
}

ExchangeVolume shared_volume(const ExchangeCase& e) {
  return {.copied_bytes = token_bytes(e) + slots_bytes(e), .meetings = 2};
}

ExchangeVolume hierarchical_volume(const ExchangeCase& e) {
  const Index nodes = e.ep / e.ep_on_node;
  const auto n = static_cast<double>(nodes);
  const double relayed = groups_visited(e.num_experts, e.top_k, nodes) * token_bytes(e);
  return {.network_bytes = relayed * (n - 1) / n,
          .network_messages = n - 1,
          .copied_bytes = 2 * relayed + token_bytes(e) + slots_bytes(e),
          .meetings = 2};
}

ExchangeVolume allgather_volume(const ExchangeCase& e) {
  ExchangeVolume volume = sent_to_all(e, token_bytes(e) * static_cast<double>(e.ep));
  volume.copied_bytes = 2 * slots_bytes(e);
  return volume;
}

}  // namespace

std::string_view name_of(ExchangeWay way) {
  constexpr std::array<std::string_view, kExchangeWays.size()> names = {"alltoall", "shared", "hierarchical",
                                                                        "allgather"};
  return names[static_cast<std::size_t>(way)];
}

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

ExchangeVolume exchange_volume(ExchangeWay way, const ExchangeCase& e) {
  require(e.ep >= 1 && e.ep_on_node >= 1 && e.ep % e.ep_on_node == 0, "an ep row lies evenly on its nodes");
  if (e.ep == 1) return {.copied_bytes = 2 * slots_bytes(e)};
  switch (way) {
    case ExchangeWay::kAlltoall:
      return alltoall_volume(e);
    case ExchangeWay::kShared:
      return shared_volume(e);
    case ExchangeWay::kHierarchical:
      return hierarchical_volume(e);
    case ExchangeWay::kAllgather:
      return allgather_volume(e);
  }
  return {};
}

double count_bytes(const ExchangeCase& e) {
  return kCount * static_cast<double>(ceil_div(e.num_experts, e.ep) * (e.ep - 1));
}

bool can_run(ExchangeWay way, const ExchangeCase& e) {
  return way != ExchangeWay::kShared || e.ep_on_node == e.ep;
}

double exchange_seconds(const ExchangeVolume& v, const ExchangeRates& r, Index sharers) {
  const auto cost = [](double amount, double rate) { return amount == 0 ? 0.0 : amount / rate; };
  return v.node_messages * r.node_message_seconds + v.network_messages * r.network_message_seconds +
         cost(v.node_bytes, r.node_bandwidth) +
         cost(v.network_bytes * static_cast<double>(sharers), r.network_bandwidth) +
         cost(v.copied_bytes, r.copy_bandwidth) + v.meetings * r.meeting_seconds;
}

}  // namespace moeloom
