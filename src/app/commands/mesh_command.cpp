#include "base/text.hpp"
#include "comm/process_memory.hpp"
#include "model/freeze.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "moeloom/base/errors.hpp"
#include "plan/fit.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <utility>

#include "cli/host_network.hpp"
#include "cli/options.hpp"
#include "commands/commands.hpp"
#include "commands/rate_source.hpp"
#include "fields/option_values.hpp"

namespace moeloom {
namespace {

std::string list_text(const std::vector<Index>& numbers) {
  std::vector<std::string> words;
  for (const Index n : numbers) words.push_back(std::to_string(n));
  return joined(words, ",");
}

std::string option_words(Index ep, Index accumulate) {
  return "--dp 0 --ep " + std::to_string(ep) + " --accumulate " + std::to_string(accumulate);
}

/// Of the run, the checkpoint or the folder that it starts from, or from flags.
ModelConfig config_of_run(const TrainOptions& train) {
  ModelOptions model = train.model;
  if (!train.run.resume.empty()) model.folder = train.run.resume;
  return checked_config(model, train.optimizer.lora);
}

std::set<std::string> frozen_of(const TrainOptions& train, const ModelConfig& config) {
  if (train.optimizer.freeze.empty()) return {};
  return matching_parameters(parameter_specs(config, {0, config.num_experts}), train.optimizer.freeze);
}

/// With a rank in each slot, if there are as many sequences; a step's sequences may not divide over those.
PlannedJob planned_of(const MeshQuestion& question) {
  const TrainOptions& train = question.train;
  const ModelConfig config = config_of_run(train);
  const Index on_host = std::min(std::ranges::max(question.slots), train.batch.sequences);
  const Index threads =
      train.kernels.threads > 0
          ? train.kernels.threads
          : read_environment().threads.value_or(std::max<Index>(processors_here() / on_host, 1));
  const Index memory = question.host_bytes > 0 ? question.host_bytes : memory_of_this_node();
  return {.config = config,
          .job = {.batch = train.batch,
                  .keeping = train.keeping,
                  .layout = {.ranks_per_node = on_host,
                             .processors_per_node = processors_here(),
                             .threads = threads}},
          .memory_per_node = static_cast<double>(memory) - kProgramBytes * static_cast<double>(on_host),
          .gmm_budget_bytes = train.kernels.gmm_budget_bytes,
          .dtype = train.kernels.dtype,
          .frozen = frozen_of(train, config)};
}

std::optional<FittingJob> fit_of(const MeshQuestion& question, const PlannedJob& planned) {
  const std::optional<DispatcherKind> kind = question.train.mesh.exchange.dispatcher;
  if (!kind) return fit_on_hosts(planned, question.train.mesh.ep, question.slots);
  const std::array kinds = {*kind, DispatcherKind::kAlltoall};  // the latter is that of ep = 1
  return fit_on_hosts(planned, question.train.mesh.ep, question.slots, kinds);
}

/// Ranks that each host takes where they are filled in order.
std::vector<Index> filled(std::vector<Index> slots, Index ranks) {
  for (Index& slot : slots) ranks -= std::exchange(slot, std::min(slot, ranks)) > 0 ? slot : 0;
  return slots;
}

}  // namespace

int mesh_command(int argc, char** argv) {
  const MeshQuestion question = parse_mesh_question(argc, argv);
  if (question.this_network) {
    if (const auto violations = network_violations_here(); !violations.empty()) throw ConfigError(violations);
    return 0;
  }
  if (question.this_host) {
    std::printf("%lld\n", static_cast<long long>(memory_of_this_node()));
    return 0;
  }
  const PlannedJob planned = planned_of(question);
  const auto fit = fit_of(question, planned);
  if (!fit)
    throw Error("no mesh of 1 to " +
                std::to_string(std::accumulate(question.slots.begin(), question.slots.end(), Index{0})) +
                " ranks fits, with " + bytes_text(planned.memory_per_node) +
                " on a host for its ranks, that divides " + std::to_string(question.train.batch.sequences) +
                " sequences a step" +
                (planned.job.batch.exact > 1
                     ? " into micro-batches of whole --exact " + std::to_string(planned.job.batch.exact)
                     : ""));
  std::printf("ranks %lld\nslots %s\nasked %s\noptions %s\nneeds %s a rank\n",
              static_cast<long long>(fit->job.layout.mesh.world()),
              list_text(filled(question.slots, fit->job.layout.mesh.world())).c_str(),
              option_words(question.train.mesh.ep, question.train.batch.micro_batches).c_str(),
              option_words(fit->job.layout.mesh.ep, fit->job.batch.micro_batches).c_str(),
              bytes_text(fit->memory.total() + kProgramBytes).c_str());
  return 0;
}

}  // namespace moeloom
