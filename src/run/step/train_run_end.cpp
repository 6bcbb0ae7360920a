#include "comm/process_memory.hpp"
#include "model/generate.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <cmath>

#include "fields/option_values.hpp"
#include "fields/train_fields.hpp"
#include "open/memory_ceiling.hpp"
#include "open/run_folder.hpp"
#include "open/run_settings.hpp"
#include "step/sample.hpp"
#include "step/train_run.hpp"
#include "summary/run_report.hpp"

namespace moeloom {
namespace {

constexpr Index kSequencesPerEvaluation = 8;  // of one rank at a time

}  // namespace

std::optional<double> TrainRun::validate() {
  enter(Activity::kValidating);
  // No more than a micro-batch of a step, for which memory was planned.
  const Index at_once =
      std::min(kSequencesPerEvaluation, settings_.batch.sequences_per_micro_batch(mesh_.world().size()));
  const std::vector<Batch> batches =
      batches_.heldout(options_.run.eval_sequences, at_once, mesh_.world().rank());
  if (batches.empty()) return std::nullopt;
  return trainer_.evaluate(batches);
}

std::string TrainRun::sample() {
  if (options_.run.sample_chars == 0) return {};
  const std::string reason =
      why_no_sample(options_.run, inputs_.text ? &*inputs_.text : nullptr, inputs_.config);
  if (!reason.empty()) {
    log_.info(Event().with("sample", false).with("reason", reason));
    return {};
  }
  return sample_text(model_->decoder, mesh_, decision().table, options_.run, *inputs_.text);
}

void TrainRun::say_peak() {
  const auto mine =
      static_cast<double>(peak_held_bytes(dispatcher_.memory.get()) + model_->store.shared_bytes());
  const auto rows = static_cast<double>(model_->decoder.most_rows());
  log_.info(peak_event({.bytes = mesh_.world().all_max(mine),
                        .rows = static_cast<Index>(mesh_.world().all_max(rows)),
                        .range = row_range(inputs_.config, decision().job)},
                       decision()));
}

std::optional<TimeUse> TrainRun::spent() const {
  const std::vector<Restart> restarts = read_restarts(in_run("restarts.jsonl"));
  if (restarts.empty() && first_step_ > 0) return std::nullopt;
  return time_use(read_metrics(in_run("metrics.jsonl")), restarts, host_.started, wall_clock(),
                  held_seconds_ - held_told_);
}

void TrainRun::finish() {
  trainer_.settle();
  const std::optional<double> validation = validate();
  // A broken state is not saved: it would take the place of the last good checkpoint.
  const bool sound = !validation || std::isfinite(*validation);
  finish_save();
  if (sound && first_step_ < options_.run.steps && saved_ != options_.run.steps) save(options_.run.steps);
  enter(Activity::kEnding);
  if (sound && !options_.run.export_folder.empty()) export_weights();
  const std::string text = sound ? sample() : std::string();
  say_peak();
  write_output("report", [&] {
    ReportInfo info;
    info.title = "moeloom: " + options_.run.folder.filename().string();
    info.facts = run_facts(options_, inputs_, mesh_);
    for (auto& fact : facts_of(decision())) info.facts.push_back(std::move(fact));
    info.kernels = decision().kernels;
    info.gmm_request = decision().gmm_request;
    info.gmm = decision().gmm;
    info.num_experts = inputs_.config.num_experts;
    info.last_rows = last_rows_;
    info.validation_loss = validation;
    info.loss_unit = "nats per " + inputs_.unit();
    info.prompt = options_.run.prompt;
    info.sample = printable(text);
    info.configuration = resolved_config(options_);
    info.words = host_.words;
    if (!is_rank_0()) return;
    info.restarts = read_restarts(in_run("restarts.jsonl"));
    info.time = spent();
    write_report(in_run(kReportFile), in_run("metrics.jsonl"), info);
  });
  write_output("result", [&] {
    if (is_rank_0()) print_result(validation, text);
  });
  if (!sound)
    throw AgreedError(
        "the validation loss after step " + std::to_string(options_.run.steps) +
        " is not finite, and nothing was saved; lower `lr` and `resume` a checkpoint of before");
}

void TrainRun::print_result(const std::optional<double>& validation, const std::string& text) {
  const std::vector<StepMetrics> steps = read_metrics(in_run("metrics.jsonl"));
  if (const ExampleBatches* examples = batches_.examples())
    for (const Event& event : progress_events(inputs_.data, options_.data, *examples, options_.run.steps))
      log_.info(event);
  log_.info(result_event(steps, validation, inputs_.unit(), options_.run));
  if (!text.empty() && host_.show_sample) host_.show_sample(text);
  log_.info(Event().with("report", in_run(kReportFile).string()));
  if (const auto time = spent()) log_.info(time_event(*time));
}

}  // namespace moeloom
