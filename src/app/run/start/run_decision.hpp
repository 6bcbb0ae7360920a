// From what a command was told to what will run: the options and the environment as a request, the decision
// made and said.
#pragma once

#include "moeloom/plan/decide/run_facts.hpp"
#include "moeloom/plan/rates/gmm_prediction.hpp"

#include "cli/environment.hpp"
#include "run/record/log.hpp"

namespace moeloom {

/// The flags' request, or what the options ask for where no flag is set: --calibrate is asking for measure,
/// and naming fused_moe for force. Throws ConfigError for --calibrate beside another request.
AskedGmm gmm_request(const KernelOptions& choice, const EnvironmentFlags& flags);

/// Everything that is asked for. Throws ConfigError as gmm_request() does.
RunRequest run_request(const KernelOptions& choice, const MeshOptions& mesh, const EnvironmentFlags& flags);

/// A decision, and how a prediction that it needed came about.
struct DecidedRun {
  RunDecision decision;
  FoundPrediction prediction;
  std::filesystem::path rates_file;  // empty where no prediction was needed
};

/// The network between nodes as it was given, instead of what stands there.
void use_network(MachineRates& rates, const NetworkOptions& network);
void use_network(RunFacts& facts, const NetworkOptions& network);

/// decide(), after a measurement on rank 0 where GMM request measure needs one and nothing is recorded.
/// Collective over the world; throws AgreedError for what was asked for by name and cannot run.
DecidedRun decide_run(RunFacts facts, const RunRequest& request, const KernelOptions& choice,
                      const EnvironmentFlags& flags, const Communicator& world);

/// One line a decision.
void log_decision(Log& log, const DecidedRun& run);
/// How rows travel, for the report, by name.
std::vector<std::pair<std::string, std::string>> facts_of(const RunDecision& decision);

}  // namespace moeloom
