#include "step/run_result.hpp"

#include "comm/process_memory.hpp"

#include "fields/option_values.hpp"
#include "fields/train_fields.hpp"
#include "open/memory_ceiling.hpp"
#include "open/run_folder.hpp"
#include "summary/run_report.hpp"

namespace moeloom {
namespace {

/// Of the whole run; none where nobody recorded when it began.
std::optional<TimeUse> spent(const OpenedRun& run, const std::vector<StepMetrics>& steps,
                             double held_untold) {
  const std::vector<Restart> restarts = read_restarts(run.file("restarts.jsonl"));
  if (restarts.empty() && run.first_step() > 0) return std::nullopt;
  return time_use(steps, restarts, run.host.started, wall_clock(), held_untold);
}

}  // namespace

void export_weights(const OpenedRun& run, const ParameterStore& store, Outputs& outputs) {
  const std::filesystem::path& folder = run.options.run.export_folder;
  if (folder.empty()) return;
  const WeightFormat format{.shard_bytes = run.options.run.shard_bytes,
                            .dtype = run.options.run.export_dtype};
  if (outputs.write("export", [&] {
        export_model(folder, store, run.mesh, run.inputs.config, format, run.inputs.words);
      }))
    run.log.info(
        Event().with("exported", folder.string()).with("dtype", std::string(dtype_text(format.dtype))));
}

void tell_peak(const OpenedRun& run, const TrainingState& model, const NodeMemory* rows) {
  const auto mine = static_cast<double>(peak_held_bytes(rows) + model.store.shared_bytes());
  const auto most_rows = static_cast<double>(model.decoder.most_rows());
  run.log.info(peak_event({.bytes = run.world().all_max(mine),
                           .rows = static_cast<Index>(run.world().all_max(most_rows)),
                           .range = row_range(run.inputs.config, run.decision.job)},
                          run.decision));
}

ReportInfo page_info(const OpenedRun& run, const std::vector<std::vector<Index>>& last_rows) {
  ReportInfo info;
  info.title = "moeloom: " + run.options.run.folder.filename().string();
  info.facts = run_facts(run.options, run.inputs, run.mesh);
  for (auto& fact : facts_of(run.decision)) info.facts.push_back(std::move(fact));
  info.kernels = run.decision.kernels;
  info.gmm_request = run.decision.gmm_request;
  info.gmm = run.decision.gmm;
  info.num_experts = run.inputs.config.num_experts;
  info.last_rows = last_rows;
  info.loss_unit = "nats per " + run.inputs.unit();
  info.prompt = run.options.run.prompt;
  info.configuration = resolved_config(run.options);
  info.words = run.host.words;
  info.restarts = read_restarts(run.file("restarts.jsonl"));
  return info;
}

void write_page(const OpenedRun& run, const RunResult& result) {
  ReportInfo info = page_info(run, result.last_rows);
  info.validation_loss = result.validation;
  info.sample = printable(result.text);
  info.time = spent(run, read_metrics(run.file("metrics.jsonl")), result.held_untold);
  write_report(run.file(kReportFile), run.file("metrics.jsonl"), info);
}

void tell_result(const OpenedRun& run, const RunResult& result) {
  const std::vector<StepMetrics> steps = read_metrics(run.file("metrics.jsonl"));
  if (const ExampleBatches* examples = run.batches.examples())
    for (const Event& event :
         progress_events(run.inputs.data, run.options.data, *examples, run.options.run.steps))
      run.log.info(event);
  run.log.info(result_event(steps, result.validation, run.inputs.unit(), run.options.run));
  if (!result.text.empty() && run.host.show_sample) run.host.show_sample(result.text);
  run.log.info(Event().with("report", run.file(kReportFile).string()));
  if (const auto time = spent(run, steps, result.held_untold)) run.log.info(time_event(*time));
}

}  // namespace moeloom
