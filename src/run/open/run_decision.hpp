// From what a command was told to what will run: the options and the environment as a request, the decision
// made and said.
#pragma once

#include "moeloom/run/flags.hpp"
#include "moeloom/run/options.hpp"
#include "plan/decide/run_facts.hpp"

#include "record/log.hpp"

namespace moeloom {

/// What was decided and the sentence for the log that says by whom.
struct AskedGmm {
  GmmRequest request = GmmRequest::kAuto;
  std::string reason;
};
/// The flags' request, or what the options ask for where no flag is set: naming fused_moe is asking for
/// force.
AskedGmm gmm_request(const KernelOptions& choice, const RunFlags& flags);

/// Everything that is asked for.
RunRequest run_request(const KernelOptions& choice, const AskedExchange& asked, const RunFlags& flags);

/// The network between nodes as it was given, instead of what stands there.
void use_network(MachineRates& rates, const NetworkOptions& network);
void use_network(RunFacts& facts, const NetworkOptions& network);

/// decide(), the same on every rank. Collective over the world; throws AgreedError for what was asked for by
/// name and cannot run.
RunDecision decide_run(const RunFacts& facts, const RunRequest& request, const Communicator& world);

/// One line a decision.
void log_decision(const Log& log, const RunDecision& decision);
/// How rows travel, for the report, by name.
std::vector<std::pair<std::string, std::string>> facts_of(const RunDecision& decision);

}  // namespace moeloom
