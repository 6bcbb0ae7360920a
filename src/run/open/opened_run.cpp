#include "open/opened_run.hpp"

#include "comm/process_memory.hpp"
#include "io/disk_memory.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/violations.hpp"
#include "train/training_state.hpp"

#include <algorithm>
#include <utility>

#include "fields/job_words.hpp"
#include "fields/option_values.hpp"
#include "open/base_mark.hpp"
#include "open/data_marks.hpp"
#include "open/memory_ceiling.hpp"
#include "open/processors.hpp"
#include "open/run_settings.hpp"

namespace moeloom {
namespace {

/// Each rank asks its own node.
void require_offload(const std::filesystem::path& folder, const std::vector<ParameterSpec>& parameters) {
  if (folder.empty()) return;
  Violations violations;
  violations.unless(std::filesystem::is_directory(folder),
                    "`offload` " + folder.string() + " is no folder; make it, or name another");
  violations.unless(!lies_in_memory(folder),
                    "`offload` " + folder.string() + " lies in memory; name a folder on a disk");
  violations.attempt([&] { require_use_of_offload(folder, parameters); });
  violations.throw_if_any();
}

/// What will run, from the options, the files that the run starts from and this mesh. Collective.
RunDecision decide_training(const OpenedRun& run, const RunFlags& flags) {
  const TrainOptions& options = run.options;
  const ModelConfig& config = run.inputs.config;
  const Mesh& mesh = run.mesh;
  const Job job{.batch = options.batch,
                .keeping = options.keeping,
                .layout = {.threads = threads(), .pretended_nodes = flags.pretended_nodes}};
  RunFacts facts = find_run_facts(config, mesh, job);
  if (const auto& recorded = run.inputs.recorded)
    facts.recorded = GmmDecision{recorded->gmm_applied, recorded->gmm_reason};
  if (options.mesh.network.bytes_per_second > 0) use_network(facts, options.mesh.network);
  const ExpertRange most_experts = experts_of(std::max<Index>(config.num_experts, 1), mesh.shape().ep, 0);
  facts.parameters = kept_specs(config, most_experts, run.inputs.frozen, options.keeping);
  facts.data_bytes = static_cast<double>(run.batches.most_bytes());
  facts.program_bytes = mesh.world().all_max(
      static_cast<double>(std::max<Index>(private_bytes() - run.batches.held_bytes(), 0)));
  RunRequest asked = run_request(options.kernels, options.mesh.exchange, flags);
  asked.row_budget = options.router.row_budget;
  asked.memory_ceiling = options.run.memory_bytes;
  asked.save_copy = saves_before_the_end(options.run) ? options.run.async_save : std::optional(false);
  RunDecision decision = decide_run(facts, asked, mesh.world());
  const double left = static_cast<double>(available_memory()) / static_cast<double>(mesh.node().size());
  const double least_left = -mesh.world().all_max(-left);
  agree(mesh.world(), [&] {
    require_offload(options.keeping.offload, facts.parameters);
    require_within_ceiling(facts, decision, run.inputs.frozen);
    if (options.run.memory_bytes == 0) require_within_node(facts, decision, run.inputs.frozen, least_left);
  });
  return decision;
}

/// Collective.
Document settings_of(const OpenedRun& run) {
  const ModelConfig& config = run.inputs.config;
  Document settings = document_of(run.settings);
  add_routing(run.options.router, config, settings);
  add_step_texts(run.options, settings);
  add_data_marks(run.options.data, run.inputs.data, settings);
  for (const auto& [option, text] : format_texts(run.options.keeping)) settings.set(option, text);
  if (config.adapter)
    agree(run.mesh.world(),
          [&] { settings.set(kBaseSetting, base_mark(SafetensorsFolder(config.adapter->base))); });
  if (config.adapter && config.adapter->dropout > 0) settings.set(kDropoutSetting, config.adapter->dropout);
  return settings;
}

}  // namespace

OpenedRun::OpenedRun(const TrainRequest& request, RunInputs opened, Mesh over, const RunHost& told)
    : options(request.options),
      rate_reason(request.rate_reason),
      inputs(std::move(opened)),
      mesh(std::move(over)),
      host(told),
      log(told),
      settings(trainer_settings(options, inputs.config)),
      batches(inputs.data, options, mesh.world().size()),
      decision(decide_training(*this, request.flags)),
      recorded_settings(settings_of(*this)) {}

TrainerState OpenedRun::state_at(Index step, Index tokens_seen) const {
  TrainerState state;
  state.step = step;
  state.dtype = std::string(dtype_text(decision.dtype.type));
  state.seed = options.run.seed;
  state.data_file = sources_text(options.data.sources);
  state.data_bytes = inputs.data.bytes;
  state.global_batch = options.batch.sequences;
  state.sequence_length = options.batch.length;
  state.gmm_applied = decision.gmm.apply;
  state.gmm_reason = inputs.recorded ? inputs.recorded->gmm_reason : decision.gmm.reason;
  state.settings = recorded_settings;
  state.settings.set("tokens_seen", tokens_seen);
  return state;
}

}  // namespace moeloom
