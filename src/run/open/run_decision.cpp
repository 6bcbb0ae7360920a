#include "open/run_decision.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"

#include <variant>

#include "fields/network_text.hpp"

namespace moeloom {
namespace {

/// Ranks that decide by other rates would wait for weights that nobody sends.
std::string rates_text(const RebalanceRates& rates) {
  const auto& [products, on_node, between_nodes] = rates;
  std::string text = " by " + std::to_string(products);
  for (const auto& [row, weights, gradients] : {on_node, between_nodes})
    for (const std::int64_t each : {row, weights, gradients}) text += "/" + std::to_string(each);
  return text + " ns";
}

std::string on_text(bool on) {
  return on ? "on" : "off";
}

/// Ranks that took different ways would wait for each other for ever.
void require_one_decision(const RunDecision& d, const Communicator& world) {
  const Exchange& e = d.job.exchange;
  const std::string mine = std::string(name_of(e.dispatcher)) + ", overlap " + std::to_string(e.chunks) +
                           ", reduce " + on_text(e.overlap_reduce) + ", gather " + on_text(e.overlap_gather) +
                           ", rebalance " + on_text(e.rebalance) + (d.rates ? rates_text(*d.rates) : "") +
                           ", row budget " + std::to_string(d.row_budget.rows) + ", grouped " +
                           std::to_string(d.gmm.apply) + ", " + std::string(dtype_text(d.dtype.type));
  const std::vector<std::string> all = world.all_gather_text(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw AgreedError("rank 0 decides on " + all[0] + " and rank " + std::to_string(rank) + " on " +
                        all[rank] + "; say `dispatcher`, `overlap` and `net`, so that all do the same");
}

/// What was decided of the exchange, and why.
struct Decided {
  std::string name;
  std::variant<bool, std::string> value;
  std::string reason;
  bool reason_says_it = false;  // it begins with what was asked for
};
std::vector<Decided> decided_of(const RunDecision& decision) {
  const Exchange& exchange = decision.job.exchange;
  const ExchangeReasons& why = decision.why;
  std::vector<Decided> all = {
      {"dispatcher", std::string(name_of(exchange.dispatcher)), why.dispatcher},
      {"overlap", exchange.chunks == 0 ? "off" : std::to_string(exchange.chunks), why.chunks},
      {"overlap_grad_reduce", exchange.overlap_reduce, why.overlap_reduce},
      {"overlap_param_gather", exchange.overlap_gather, why.overlap_gather}};
  if (exchange.rebalance) all.push_back({"rebalance", true, why.rebalance, true});
  return all;
}

/// What routing may add is told where it is more than next to nothing.
bool grows_with_rows(const RunDecision& decision) {
  constexpr double kWorthAWord = 1.05;
  return decision.most_memory >= kWorthAWord * decision.memory.total();
}

Event memory_event(const RunDecision& decision) {
  const MemoryNeed& need = decision.memory;
  Event event = Event().with("memory", bytes_text(need.total()));
  std::string reason = "predicted for a rank";
  if (grows_with_rows(decision)) {
    event.with("memory_at_most", bytes_text(decision.most_memory));
    reason += " with even rows, at most if all that may come to it do";
  }
  reason += ": " + bytes_text(need.lasting()) + " weights, gradients and moments, " +
            bytes_text(need.packed) + " packed experts, " + bytes_text(need.activations) + " activations, " +
            bytes_text(need.buffers) + " buffers";
  if (need.replicas > 0) reason += ", " + bytes_text(need.replicas) + " replicas";
  if (need.save_copy > 0) reason += ", " + bytes_text(need.save_copy) + " copy for saves";
  if (need.program > 0) reason += ", " + bytes_text(need.program) + " program and MPI";
  return event.with("reason", reason);
}

}  // namespace

namespace {

std::string patch_off(const RunFlags& flags) {
  return (flags.why_patch.empty() ? "the caller" : flags.why_patch) + " switches every kernel off";
}

AskedGmm choose_gmm_request(const RunFlags& flags, GmmRule rule) {
  if (!flags.patch) return {GmmRequest::kNever, patch_off(flags)};
  if (flags.gmm) return {*flags.gmm, flags.why_gmm.empty() ? "asked for by the caller" : flags.why_gmm};
  if (rule == GmmRule::kUpstream)
    return {GmmRequest::kNever, "no flag asks for it, and unset means off upstream (`gmm-rule` upstream)"};
  return {GmmRequest::kAuto, "no flag is set, so a rule decides from the sizes"};
}

std::string kernels_of(const RunFlags& flags, const std::string& asked) {
  return flags.patch ? asked : "none";
}

}  // namespace

AskedGmm gmm_request(const KernelOptions& choice, const RunFlags& flags) {
  AskedGmm request = choose_gmm_request(flags, choice.gmm_rule);
  if (request.request == GmmRequest::kAuto && !flags.gmm) {
    if (KernelRegistry::builtin().named(kernels_of(flags, choice.kernels)).contains("fused_moe"))
      request = {GmmRequest::kForce, "`kernels` names fused_moe"};
  }
  return request;
}

RunRequest run_request(const KernelOptions& choice, const AskedExchange& asked, const RunFlags& flags) {
  const AskedGmm gmm = gmm_request(choice, flags);
  RunRequest request{.kernels = kernels_of(flags, choice.kernels),
                     .kernels_reason = flags.patch ? "`kernels` " + choice.kernels : patch_off(flags),
                     .fused_ops = flags.fused_ops,
                     .gmm = gmm.request,
                     .gmm_reason = gmm.reason,
                     .gmm_budget_bytes = choice.gmm_budget_bytes,
                     .dtype = choice.dtype,
                     .bf16 = flags.bf16,
                     .exchange = asked};
  return request;
}

void use_network(MachineRates& rates, const NetworkOptions& network) {
  rates.network_bytes_per_second = network.bytes_per_second;
  rates.network_message_seconds = network.message_seconds;
  constexpr double kLeastOfTcp = 10e-6;  // a message of a fabric takes less, one through the kernel more
  rates.network_tcp = network.message_seconds >= kLeastOfTcp;
}

void use_network(RunFacts& facts, const NetworkOptions& network) {
  use_network(facts.rates, network);
  facts.rates_source = "`net` " + network_text(network);
}

RunDecision decide_run(const RunFacts& facts, const RunRequest& request, const Communicator& world) {
  RunDecision decision;
  agree(world, [&] { decision = decide(facts, request); });
  require_one_decision(decision, world);
  return decision;
}

void log_decision(const Log& log, const RunDecision& d) {
  for (const auto& [name, value, reason, says_it] : decided_of(d)) {
    Event event;
    std::visit([&](const auto& v) { event.with(name, v); }, value);
    event.with("reason", reason);
    log.info(event);
  }
  if (d.job.batch.exact > 0) log.info(Event().with("exact", d.job.batch.exact).with("reason", d.exact));
  if (d.row_budget.room)
    log.info(Event().with("row_budget", d.row_budget.rows).with("reason", d.row_budget.reason));
  log.info(Event().with("gmm_request", d.gmm_request));
  log.info(Event().with("gmm", d.gmm.apply).with("reason", d.gmm.reason));
  log.info(Event().with("dtype", dtype_text(d.dtype.type)).with("reason", d.dtype.reason));
  log.info(Event().with("kernels_request", d.kernels_request));
  for (const KernelReport& report : d.kernels)
    log.info(Event().with("kernel", report.id).with("applied", report.applied).with("reason", report.reason));
  if (d.memory.total() > 0) log.info(memory_event(d));
}

std::vector<std::pair<std::string, std::string>> facts_of(const RunDecision& decision) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const auto& [name, value, reason, says_it] : decided_of(decision)) {
    const bool* on = std::get_if<bool>(&value);
    const std::string text = on != nullptr ? on_text(*on) : std::get<std::string>(value);
    facts.emplace_back(name, says_it ? reason : text + ": " + reason);
  }
  return facts;
}

}  // namespace moeloom
