#include "step/run_start.hpp"

#include "base/text.hpp"
#include "model/hf/weights/adapter.hpp"
#include "model/hf/weights/initialise.hpp"
#include "moeloom/base/errors.hpp"

#include "fields/option_values.hpp"
#include "open/run_folder.hpp"
#include "open/run_settings.hpp"
#include "summary/run_report.hpp"

namespace moeloom {
namespace {

void resume(const OpenedRun& run, TrainingState& model) {
  const RunInputs& inputs = run.inputs;
  const TrainerState then =
      load_checkpoint(inputs.weights, model.store, model.optimizer, run.mesh, inputs.config);
  for (const Event& change : changes_between(then, run.state_at(run.first_step(), 0))) run.warn_once(change);
  run.log.info(Event()
                   .with("resumed", inputs.weights.string())
                   .with("step", run.first_step())
                   .with("carried", static_cast<Index>(inputs.config.names.carried.names.size())));
}

void start_from_folder(const OpenedRun& run, ParameterStore& store) {
  const RunInputs& inputs = run.inputs;
  const NamePatterns& allowed = run.options.model.allow_missing;
  const std::uint64_t seed = run.options.run.seed;
  if (!allowed.empty()) initialise(store, inputs.config, seed);
  const WeightCoverage coverage = load_model(inputs.weights, store, run.mesh, inputs.config, allowed);
  run.log.info(event_of(coverage, inputs.weights));
  if (!coverage.unused.empty()) run.log.info(Event().with("unused", joined(coverage.unused)));
  if (!coverage.missing.empty())
    run.warn_once(Event().with("missing", joined(coverage.missing)).with("weights", "initial"));
  if (!inputs.config.adapter) return;
  initialise_adapter(store, inputs.config, seed);
  if (const auto lost = lost_in_peft(inputs.config); !lost.empty()) run.warn_once(lost_in_peft_event(lost));
}

void start_anew(const OpenedRun& run, ParameterStore& store) {
  initialise(store, run.inputs.config, run.options.run.seed);
  if (const std::filesystem::path& folder = run.options.model.folder; !folder.empty())
    run.warn_once(
        Event().with("weights", "initial").with("reason", folder.string() + " holds config.json only"));
}

}  // namespace

void tell_run(const OpenedRun& run, const ParameterStore& store) {
  for (const auto& [key, value] : run_facts(run.options, run.inputs, run.mesh))
    run.log.info(Event().with(key, value));
  for (const Prepared& prepared : run.inputs.data.prepared) say(prepared, run.log);
  std::vector<ParameterSpec> specs;
  for (const Parameter& parameter : store.parameters()) specs.push_back(parameter.spec);
  if (const auto event = decay_event(specs, run.options.optimizer.settings)) run.log.info(*event);
  if (!run.rate_reason.empty()) run.log.info(rate_event(run.settings.schedule, run.rate_reason));
  log_decision(run.log, run.decision);
}

void load_weights(const OpenedRun& run, TrainingState& model) {
  const RunInputs& inputs = run.inputs;
  if (inputs.start) {
    for (const Event& warning : start_warnings(*inputs.start)) run.warn_once(warning);
    if (const auto event = verified_event(*inputs.start)) run.log.info(*event);
  }
  if (!inputs.weights.empty())
    if (const auto event = missing_towers(inputs)) run.warn_once(*event);
  for (const Event& remark : remarks_of(inputs.config)) run.log.info(remark);
  for (const std::string& became : run.options.gone) run.warn_once(Event().with("resumed", became));
  if (inputs.resumes)
    resume(run, model);
  else if (!inputs.weights.empty())
    start_from_folder(run, model.store);
  else
    start_anew(run, model.store);
  model.store.settle();
}

void plan_trace(const OpenedRun& run, std::optional<Trace>& trace) {
  const TraceOptions& asked = run.options.run.trace;
  const StepRange steps{run.first_step(), run.options.run.steps};
  if (!asked.file.empty()) agree(run.world(), [&] { trace.emplace(asked, steps, run.mesh); });
}

void plan_routing(const OpenedRun& run, RunRouting& routing) {
  const RoutedRun routed{.config = run.inputs.config,
                         .batch = run.settings.batch,
                         .seed = run.options.run.seed,
                         .steps = {run.first_step(), run.options.run.steps},
                         .resumes = run.inputs.resumes};
  for (const Event& event : routing.plan(run.options.run.routing, routed, run.batches.source(), run.world()))
    run.log.info(event);
  const auto& forced = run.options.router.forced;
  if (!forced) return;
  routing.force(*forced, routed);
  run.warn_once(Event()
                    .with("routing", std::string(name_of(*forced)))
                    .with("reason", "`force-routing`: no router chooses, for measurements"));
}

OtherCourse leave_other_course(const OpenedRun& run) {
  OtherCourse left;
  agree(run.world(), [&] {
    if (!run.is_rank_0() || !goes_on_in_its_folder(run.options.run)) return;
    std::filesystem::remove(
        run.file(kReportFile));  // of fewer steps: whoever finds one takes the run as ended
    for (const auto& [checkpoint, reason] : run.inputs.start->passed_over) {
      set_aside(checkpoint);
      left.aside.push_back(checkpoint.filename().string());
    }
    for (const auto& checkpoint : remove_checkpoints_after(run.options.run.folder, run.first_step()))
      left.removed.push_back(checkpoint.filename().string());
  });
  return left;
}

void tell_folder(const OpenedRun& run, const OtherCourse& left) {
  const RunInputs& inputs = run.inputs;
  if (run.host.open_file) run.host.open_file(run.file("train.log"), inputs.resumes);
  if (inputs.start)
    for (const Event& warning : start_warnings(*inputs.start)) run.log.record(warning);
  if (const auto warning = inputs.lock->warning()) run.log.warn(*warning);
  for (const std::string& checkpoint : left.aside)
    run.log.info(
        Event()
            .with("kept", run.file((kDamagedPrefix + checkpoint).c_str()).string())
            .with("reason",
                  "it was damaged, or could not be read; the run does not use it: look, and remove it"));
  if (left.removed.empty()) return;
  run.log.info(Event()
                   .with("removed", joined(left.removed))
                   .with("reason", "later than step " + std::to_string(run.first_step()) +
                                       ", from which the run takes another course"));
}

}  // namespace moeloom
