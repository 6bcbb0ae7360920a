#include "plan/cost/layer_exchange.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "cost/real.hpp"

namespace moeloom {
namespace {

constexpr double kUnmeasuredMessageSeconds = 1e-6;

/// MPI_Allgather of a few words, whichever algorithm Open MPI takes for them (recursive doubling, Bruck).
Index rounds_of_cuts(const ExchangeCase& exchange, Index chunks) {
  if (chunks <= 1 || exchange.ep == exchange.ep_on_node) return 0;
  return std::bit_width(at(exchange.ep - 1));
}

/// Exchanges between nodes beside the counts, which take `rounds`: where rows begin and each copy lands.
Index more_rounds(DispatcherKind kind, Index rounds) {
  return kind == DispatcherKind::kHierarchical ? rounds + 1 : 0;
}

}  // namespace

ExchangeRates link_rates(const MachineRates& machine, const Job& job) {
  const double slowdown = oversubscription(job);
  const auto seconds = [](double measured) { return measured > 0 ? measured : kUnmeasuredMessageSeconds; };
  return {.node_message_seconds = seconds(machine.node_message_seconds) * slowdown,
          .node_bandwidth =
              (machine.measured_node() ? machine.node_bytes_per_second : machine.copy_bytes / 2) / slowdown,
          .network_message_seconds = machine.network_message_seconds,
          .network_bandwidth = machine.network_bytes_per_second,
          .copy_bandwidth = machine.copy_bytes / slowdown,
          .meeting_seconds = seconds(machine.meeting_seconds) * slowdown};
}

ExchangeSeconds exchange_seconds_of_layer(const ModelConfig& config, const Job& job,
                                          const ExchangeRates& rates) {
  const ExchangeCase exchange = exchange_case(config, job);
  const auto both_passes = [&](const ExchangeVolume& volume) {
    return 2 * exchange_seconds(volume, rates, job.layout.ranks_per_node);
  };
  return {both_passes(dispatch_volume(job.exchange.dispatcher, exchange)),
          both_passes(combine_volume(job.exchange.dispatcher, exchange))};
}

double exposed_seconds(double wire, double products, Index chunks, double share_alone) {
  return std::max(wire * share_alone, wire - (1 - 1 / real(chunks)) * products);
}

double share_of_first_chunk(DispatcherKind kind, const ExchangeCase& e, Index chunks) {
  if (kind != DispatcherKind::kHierarchical) return 1 / real(chunks);
  const Index nodes = e.ep / e.ep_on_node;
  return groups_visited(e.num_experts, e.top_k, nodes * chunks) /
         (real(chunks) * groups_visited(e.num_experts, e.top_k, nodes));
}

double share_of_last_chunk(DispatcherKind kind, const ExchangeCase& e, Index chunks) {
  return e.combine == CombineMode::kFast ? share_of_first_chunk(kind, e, chunks) : 1 / real(chunks);
}

ExchangeSeconds overlapped_exchange(const ModelConfig& config, const Job& job, const ExchangeRates& rates,
                                    double expert_seconds) {
  const ExchangeCase exchange = exchange_case(config, job);
  if (job.exchange.chunks == 0 || exchange.ep == exchange.ep_on_node)
    return exchange_seconds_of_layer(config, job, rates);
  require(rates.network_bandwidth > 0, "rows that leave a node need a bandwidth between nodes");
  ExchangeRates only = rates;
  only.network_message_seconds = 0;
  const ExchangeSeconds bytes = exchange_seconds_of_layer(config, job, only);
  only.network_bandwidth = std::numeric_limits<double>::infinity();
  const ExchangeSeconds copies = exchange_seconds_of_layer(config, job, only);
  const double out = bytes.dispatch - copies.dispatch, home = bytes.combine - copies.combine;
  const double wire = out + home;  // of both passes
  const double alone =
      per(out * share_of_first_chunk(job.exchange.dispatcher, exchange, job.exchange.chunks) +
              home * share_of_last_chunk(job.exchange.dispatcher, exchange, job.exchange.chunks),
          wire);
  const double exposed = exposed_seconds(wire / 2, expert_seconds / 3, job.exchange.chunks, alone) +
                         exposed_seconds(wire / 2, 2 * expert_seconds / 3, job.exchange.chunks, alone);
  const double left = per(exposed, wire), answers = 2 * rates.network_message_seconds;
  return {std::lerp(copies.dispatch, bytes.dispatch, left) + answers,
          std::lerp(copies.combine, bytes.combine, left) + answers};
}

double waiting_seconds(double busiest, Index on_node, double expert_seconds,
                       const ExchangeSeconds& exchange) {
  const double computed = (busiest - 1) * expert_seconds, mine = 1 / real(on_node);
  return computed + (busiest - 1) * mine * (exchange.dispatch + exchange.combine) / 2 -
         std::min(computed, (1 - mine) * exchange.combine);
}

double plan_seconds_of_layer(const ModelConfig& config, const Job& job, const MachineRates& machine,
                             const ExchangeRates& rates) {
  const ExchangeCase exchange = exchange_case(config, job);
  const double slots = real(job.tokens() * config.num_experts_per_tok);
  const double sorted = oversubscription(job) * per(slots, machine.plan_slots);
  const bool in_memory =
      job.exchange.dispatcher != DispatcherKind::kAlltoall && exchange.ep == exchange.ep_on_node;
  if (in_memory) return sorted + rates.meeting_seconds;
  constexpr Index kFewestOfBruck = 16;  // ranks
  const Index rounds = exchange.ep == exchange.ep_on_node ? 0
                       : exchange.ep < kFewestOfBruck     ? 1
                                                          : std::bit_width(at(exchange.ep - 1));
  const Index more = rounds == 0 ? 0 : more_rounds(job.exchange.dispatcher, rounds);
  return sorted + real(exchange.ep_on_node - 1) * rates.node_message_seconds +
         real(rounds + more + rounds_of_cuts(exchange, job.exchange.chunks)) * rates.network_message_seconds;
}

}  // namespace moeloom
