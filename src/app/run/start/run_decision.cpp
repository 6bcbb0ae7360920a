#include "run/start/run_decision.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/text.hpp"

#include "cli/network_text.hpp"

namespace moeloom {
namespace {

/// Ranks that decide by other rates would wait for weights that nobody sends.
std::string rates_text(const RebalanceRates& rates) {
  const auto& [products, on_node, between_nodes] = rates;
  std::string text = std::to_string(products);
  for (const CrossingNanoseconds& way : {on_node, between_nodes})
    text += "/" + std::to_string(way.row) + "/" + std::to_string(way.weights);
  return text + " ns";
}

std::string on_text(const OverlapChoice& choice) {
  return choice.on ? "on" : "off";
}

/// Ranks that took different ways would wait for each other for ever.
void require_one_decision(const RunDecision& d, const Communicator& world) {
  const std::string mine = std::string(name_of(d.dispatcher.kind)) + ", overlap " +
                           std::to_string(d.overlap.chunks) + ", reduce " + on_text(d.travel.reduce) +
                           ", gather " + on_text(d.travel.gather) + ", node pool " +
                           std::to_string(d.pool.on) + ", rebalance " +
                           (d.rebalance.rates ? rates_text(*d.rebalance.rates) : "off") + ", replace every " +
                           std::to_string(d.replace.every) + " by " + rates_text(d.replace.rates) +
                           ", row budget " + std::to_string(d.row_budget.rows) + ", grouped " +
                           std::to_string(d.gmm.apply) + ", " + std::string(dtype_text(d.dtype.type));
  const std::vector<std::string> all = world.all_gather_text(mine);
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      throw AgreedError("rank 0 decides on " + all[0] + " and rank " + std::to_string(rank) + " on " +
                        all[rank] + "; say --dispatcher, --overlap and --net, so that all do the same");
}

std::vector<std::pair<std::string, OverlapChoice>> choices_of(const RunDecision& decision) {
  return {{"overlap_grad_reduce", decision.travel.reduce}, {"overlap_param_gather", decision.travel.gather}};
}

/// What routing may add; empty where it is next to nothing.
std::string uneven_text(const RunDecision& decision) {
  constexpr double kWorthAWord = 1.05;
  if (decision.most_memory < kWorthAWord * decision.memory.total()) return "";
  return "; with even rows: if all that may come to one rank do, " + bytes_text(decision.most_memory);
}

std::string overlap_text(const OverlapDecision& choice) {
  return choice.chunks == 0 ? "off" : std::to_string(choice.chunks);
}

}  // namespace

AskedGmm gmm_request(const KernelOptions& choice, const EnvironmentFlags& flags) {
  AskedGmm request = choose_gmm_request(flags, choice.gmm_rule);
  if (request.request == GmmRequest::kAuto && !flags.gmm) {
    const std::string kernels = choose_kernels(flags, choice.kernels).kernels;
    if (KernelRegistry::builtin().named(kernels).contains("fused_moe"))
      request = {GmmRequest::kForce, "--kernels names fused_moe"};
  }
  return request;
}

RunRequest run_request(const KernelOptions& choice, const MeshOptions& mesh, const EnvironmentFlags& flags) {
  const AskedKernels kernels = choose_kernels(flags, choice.kernels);
  const AskedGmm gmm = gmm_request(choice, flags);
  return {.kernels = kernels.kernels,
          .kernels_reason = kernels.reason,
          .fused_ops = flags.fused_ops,
          .gmm = gmm.request,
          .gmm_reason = gmm.reason,
          .gmm_budget_bytes = choice.gmm_budget_bytes,
          .dtype = choice.dtype,
          .bf16 = flags.bf16,
          .dispatcher = mesh.dispatcher,
          .wire = {mesh.combine, mesh.wire_dtype, flags.pretended_nodes},
          .chunks = mesh.overlap,
          .overlap_reduce = mesh.overlap_reduce,
          .overlap_gather = mesh.overlap_gather,
          .node_pool = mesh.node_pool.value_or(flags.node_pool.value_or(false)),
          .rebalance = mesh.rebalance,
          .replace_every = mesh.replace_every};
}

void use_network(MachineRates& rates, const NetworkOptions& network) {
  rates.network_bytes_per_second = network.bytes_per_second;
  rates.network_message_seconds = network.message_seconds;
  constexpr double kLeastOfTcp = 10e-6;  // a message of a fabric takes less, one through the kernel more
  rates.network_tcp = network.message_seconds >= kLeastOfTcp;
}

void use_network(RunFacts& facts, const NetworkOptions& network) {
  use_network(facts.rates, network);
  facts.rates_source = "--net " + network_text(network);
}

RunDecision decide_run(const RunFacts& facts, const RunRequest& request, const Communicator& world) {
  RunDecision decision;
  agree(world, [&] { decision = decide(facts, request); });
  require_one_decision(decision, world);
  return decision;
}

void log_decision(Log& log, const RunDecision& d) {
  log.info(Event()
               .with("dispatcher", name_of(d.dispatcher.kind))
               .with("reason", d.dispatcher.reason)
               .with("node_pool", d.pool.on));
  log.info(Event().with("overlap", overlap_text(d.overlap)).with("reason", d.overlap.reason));
  for (const auto& [name, choice] : choices_of(d))
    log.info(Event().with(name, choice.on).with("reason", choice.reason));
  if (d.rebalance.rates) log.info(Event().with("rebalance", true).with("reason", d.rebalance.reason));
  if (d.replace.every > 0)
    log.info(Event().with("replace_every", d.replace.every).with("reason", d.replace.reason));
  if (d.exact.sequences > 0)
    log.info(Event().with("exact", d.exact.sequences).with("reason", d.exact.reason));
  if (d.row_budget.room)
    log.info(Event().with("row_budget", d.row_budget.rows).with("reason", d.row_budget.reason));
  log.info(Event().with("gmm_request", d.gmm_request));
  log.info(Event().with("gmm", d.gmm.apply).with("reason", d.gmm.reason));
  log.info(Event().with("dtype", dtype_text(d.dtype.type)).with("reason", d.dtype.reason));
  log.info(Event().with("kernels_request", d.kernels_request));
  for (const KernelReport& report : d.kernels)
    log.info(Event().with("kernel", report.id).with("applied", report.applied).with("reason", report.reason));
  if (d.memory.total() > 0)
    log.info(
        Event()
            .with("memory", bytes_text(d.memory.total()))
            .with("reason",
                  "predicted for a rank: " + bytes_text(d.memory.lasting()) +
                      " weights, gradients and moments, " + bytes_text(d.memory.packed) +
                      " packed experts, " + bytes_text(d.memory.activations) + " activations, " +
                      bytes_text(d.memory.buffers) + " buffers" +
                      (d.memory.replicas > 0 ? ", " + bytes_text(d.memory.replicas) + " replicas" : "") +
                      (d.memory.save_copy > 0 ? ", " + bytes_text(d.memory.save_copy) + " copy for saves"
                                              : "") +
                      (d.memory.program > 0 ? ", " + bytes_text(d.memory.program) + " program and MPI" : "") +
                      uneven_text(d)));
}

std::vector<std::pair<std::string, std::string>> facts_of(const RunDecision& decision) {
  std::vector<std::pair<std::string, std::string>> facts = {
      {"dispatcher", std::string(name_of(decision.dispatcher.kind)) + ": " + decision.dispatcher.reason},
      {"overlap", overlap_text(decision.overlap) + ": " + decision.overlap.reason}};
  for (const auto& [name, choice] : choices_of(decision))
    facts.emplace_back(name, on_text(choice) + ": " + choice.reason);
  if (decision.rebalance.rates) facts.emplace_back("rebalance", decision.rebalance.reason);
  if (decision.replace.every > 0) facts.emplace_back("replace every", decision.replace.reason);
  return facts;
}

}  // namespace moeloom
