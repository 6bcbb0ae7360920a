#include "moeloom/base/errors.hpp"
#include "moeloom/model/generate.hpp"

#include <cmath>
#include <iostream>

#include "cli/option_values.hpp"
#include "run/run_folder.hpp"
#include "run/run_report.hpp"
#include "run/run_settings.hpp"
#include "run/sample.hpp"
#include "run/train_run.hpp"

namespace moeloom {
namespace {

constexpr Index kSequencesPerEvaluation = 8;  // of one rank at a time, to bound activations

}  // namespace

std::optional<double> TrainRun::validate() {
  const std::vector<Batch> batches =
      sampler_.heldout(options_.run.eval_sequences, kSequencesPerEvaluation, mesh_.world().rank());
  if (batches.empty()) return std::nullopt;
  return trainer_.evaluate(batches);
}

TrainerState TrainRun::state_at(Index step) const {
  TrainerState state;
  state.step = step;
  state.dtype = std::string(dtype_text(decision().dtype.type));
  state.seed = options_.run.seed;
  state.data_file = options_.data.file.string();
  state.data_bytes = data_bytes();
  state.global_batch = options_.data.global_batch;
  state.sequence_length = options_.data.sequence_length;
  state.gmm_applied = decision().gmm.apply;
  state.gmm_reason = inputs_.recorded ? inputs_.recorded->gmm_reason : decision().gmm.reason;
  state.settings = document_of(settings_);
  state.settings.set("aux_loss_pooled", options_.router.aux_loss_pooled.value_or(true));
  state.settings.set("router_jitter", options_.router.training.jitter);
  state.settings.set("capacity_factor", options_.router.training.capacity_factor);
  state.settings.set("router_bias_rate", options_.router.bias.rate);
  return state;
}

void TrainRun::save(Index done) {
  routing_.publish();  // first: what a file has too much, a run that goes on drops
  const auto path = save_checkpoint({options_.run.folder, options_.run.shard_bytes}, model_->store,
                                    model_->optimizer, mesh_, inputs_.config, state_at(done));
  agree_on_disk([&] { prune_checkpoints(options_.run.folder, options_.run.keep, done); });
  log_.info(Event().with("saved", path.string()));
  saved_ = done;
}

void TrainRun::export_weights() {
  const std::filesystem::path& folder = options_.run.export_folder;
  export_model(folder, model_->store, mesh_, inputs_.config,
               {.shard_bytes = options_.run.shard_bytes, .dtype = options_.run.export_dtype});
  log_.info(Event()
                .with("exported", folder.string())
                .with("dtype", std::string(dtype_text(options_.run.export_dtype))));
}

std::string TrainRun::sample() {
  if (options_.run.sample_chars == 0) return {};
  const std::string reason = why_no_sample(options_.run, inputs_.format, inputs_.config);
  if (!reason.empty()) {
    log_.info(Event().with("sample", false).with("reason", reason));
    return {};
  }
  return sample_text(model_->decoder, mesh_, decision().table, options_.run);
}

void TrainRun::finish() {
  const std::optional<double> validation = validate();
  // A broken state is not saved: it would take the place of the last good checkpoint.
  const bool sound = !validation || std::isfinite(*validation);
  if (sound && first_step_ < options_.run.steps && saved_ != options_.run.steps) save(options_.run.steps);
  if (sound && !options_.run.export_folder.empty()) export_weights();
  const std::string text = sound ? sample() : std::string();
  agree_on_disk([&] {
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
    write_report(in_run("report.html"), in_run("metrics.jsonl"), info);
    print_result(validation, text);
  });
  if (!sound)
    throw AgreedError(
        "the validation loss after step " + std::to_string(options_.run.steps) +
        " is not finite, and nothing was saved; lower --lr and --resume a checkpoint of before");
}

void TrainRun::print_result(const std::optional<double>& validation, const std::string& text) {
  const std::vector<StepMetrics> steps = read_metrics(in_run("metrics.jsonl"));
  log_.info(result_event(steps, validation, inputs_.unit(), options_.run));
  if (!text.empty()) std::cout << options_.run.prompt << printable(text) << "\n";
  log_.info(Event().with("report", in_run("report.html").string()));
}

}  // namespace moeloom
