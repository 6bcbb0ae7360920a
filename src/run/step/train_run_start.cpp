#include "model/hf/adapter.hpp"
#include "model/hf/initialise.hpp"
#include "moeloom/base/errors.hpp"

#include "fields/option_values.hpp"
#include "open/model_source.hpp"
#include "open/run_folder.hpp"
#include "open/run_settings.hpp"
#include "step/train_run.hpp"
#include "summary/run_report.hpp"

namespace moeloom {

void TrainRun::log_run() {
  for (const auto& [key, value] : run_facts(options_, inputs_, mesh_)) log_.info(Event().with(key, value));
  for (const Prepared& prepared : inputs_.data.prepared) say(prepared, log_);
  std::vector<ParameterSpec> specs;
  for (const Parameter& parameter : model_->store.parameters()) specs.push_back(parameter.spec);
  if (const auto event = decay_event(specs, options_.optimizer.settings)) log_.info(*event);
  if (!rate_reason_.empty()) log_.info(rate_event(settings_.schedule, rate_reason_));
  log_decision(log_, decided_);
}

void TrainRun::load() {
  if (inputs_.resumes) first_step_ = inputs_.recorded->step;
  enter(Activity::kLoading);
  ParameterStore& store = model_->store;
  if (inputs_.start) {
    for (const Event& warning : start_warnings(*inputs_.start)) warn_once(warning);
    if (const auto event = verified_event(*inputs_.start)) log_.info(*event);
  }
  if (!inputs_.weights.empty())
    if (const auto event = missing_towers(inputs_)) warn_once(*event);
  for (const Event& remark : remarks_of(inputs_.config)) log_.info(remark);
  for (const std::string& became : options_.gone) warn_once(Event().with("resumed", became));
  if (inputs_.resumes) {
    const TrainerState state =
        load_checkpoint(inputs_.weights, store, model_->optimizer, mesh_, inputs_.config);
    for (const Event& change : changes_between(state, state_at(first_step_))) warn_once(change);
    log_.info(Event()
                  .with("resumed", inputs_.weights.string())
                  .with("step", first_step_)
                  .with("carried", static_cast<Index>(inputs_.config.names.carried.names.size())));
  } else if (!inputs_.weights.empty()) {
    load_weights_alone();
    if (inputs_.config.adapter) {
      initialise_adapter(store, inputs_.config, options_.run.seed);
      if (const auto lost = lost_in_peft(inputs_.config); !lost.empty()) warn_once(lost_in_peft_event(lost));
    }
  } else {
    initialise(store, inputs_.config, options_.run.seed);
    if (const std::filesystem::path& folder = options_.model.folder; !folder.empty())
      warn_once(
          Event().with("weights", "initial").with("reason", folder.string() + " holds config.json only"));
  }
  store.settle();
}

void TrainRun::load_weights_alone() {
  const NamePatterns& allowed = options_.model.allow_missing;
  if (!allowed.empty()) initialise(model_->store, inputs_.config, options_.run.seed);
  const WeightCoverage coverage = load_model(inputs_.weights, model_->store, mesh_, inputs_.config, allowed);
  log_.info(event_of(coverage, inputs_.weights));
  if (!coverage.unused.empty()) log_.info(Event().with("unused", joined(coverage.unused)));
  if (!coverage.missing.empty())
    warn_once(Event().with("missing", joined(coverage.missing)).with("weights", "initial"));
}

void TrainRun::warn_once(const Event& event) {
  if (is_rank_0()) log_.warn(event);
}

void TrainRun::leave_other_course() {
  agree_on_disk([&] {
    if (!goes_on_in_its_folder(options_.run)) return;
    std::filesystem::remove(in_run(kReportFile));  // of fewer steps: whoever finds one takes the run as ended
    for (const auto& checkpoint : remove_checkpoints_after(options_.run.folder, first_step_))
      left_.push_back(checkpoint.filename().string());
  });
}

void TrainRun::open_files() {
  agree(mesh_.world(), [&] {
    if (!is_rank_0()) return;
    file_system_ = file_system_of(options_.run.folder);
    metrics_.emplace(in_run("metrics.jsonl"), first_step_);
    if (const auto& recorded = inputs_.recorded) {
      const std::vector<StepMetrics> earlier = read_metrics(in_run("metrics.jsonl"));
      tokens_seen_ = tokens_before(earlier, *recorded);
      go_on_watching(earlier);
    }
    if (host_.open_file) host_.open_file(in_run("train.log"), inputs_.resumes);
    if (inputs_.start)
      for (const Event& warning : start_warnings(*inputs_.start)) log_.record(warning);
    const RunLock& lock = inputs_.lock ? *inputs_.lock : *lock_;
    if (const auto warning = lock.warning()) log_.warn(*warning);
    if (left_.empty()) return;
    log_.info(Event()
                  .with("removed", joined(left_))
                  .with("reason", "later than step " + std::to_string(first_step_) +
                                      ", from which the run takes another course"));
  });
}

void TrainRun::plan_routing() {
  const RoutedRun run{.config = inputs_.config,
                      .batch = settings_.batch,
                      .seed = options_.run.seed,
                      .steps = {first_step_, options_.run.steps},
                      .resumes = inputs_.resumes};
  for (const Event& event : routing_.plan(options_.run.routing, run, batches_.source(), mesh_.world()))
    log_.info(event);
  if (!options_.router.forced) return;
  routing_.force(*options_.router.forced, run);
  warn_once(Event()
                .with("routing", std::string(name_of(*options_.router.forced)))
                .with("reason", "`force-routing`: no router chooses, for measurements"));
}

void TrainRun::go_on_watching(const std::vector<StepMetrics>& earlier) {
  std::vector<CollapseEvent> told;
  for (const StepMetrics& step : earlier)
    for (const CollapseEvent& event : step.collapse)
      if (event.layer >= 0 && event.layer < inputs_.config.num_hidden_layers && event.expert >= 0 &&
          event.expert < inputs_.config.num_experts)
        told.push_back(event);
  collapse_watch_.resume(told);
}

void TrainRun::plan_trace() {
  const TraceOptions& trace = options_.run.trace;
  if (trace.file.empty()) return;
  agree(mesh_.world(), [&] { trace_.emplace(trace, StepRange{first_step_, options_.run.steps}, mesh_); });
}

}  // namespace moeloom
