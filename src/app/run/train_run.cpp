#include "run/train_run.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/process_memory.hpp"

#include <algorithm>
#include <iostream>
#include <new>
#include <utility>

#include "cli/option_values.hpp"
#include "run/run_report.hpp"
#include "run/run_settings.hpp"

namespace moeloom {
namespace {

constexpr Index kMostSkippedInARow = 20;  // the run will not come back by itself

/// What will run, from the options, the files that the run starts from and this mesh. Collective.
DecidedRun decide_training(const TrainRequest& request, const RunInputs& inputs, const Mesh& mesh) {
  const TrainOptions& options = request.options;
  const BatchShape batch = batch_shape(options, mesh.world().size());
  const StepCase work{.threads = threads(),
                      .tokens = batch.sequences_per_micro_batch() * batch.sequence_length,
                      .sequence_length = batch.sequence_length,
                      .micro_batches = batch.accumulation};
  RunFacts facts = find_run_facts(inputs.config, mesh, work, request.flags.pretended_nodes);
  if (const auto& recorded = inputs.recorded)
    facts.recorded = GmmDecision{recorded->gmm_applied, recorded->gmm_reason};
  if (options.mesh.network.bytes_per_second > 0) use_network(facts, options.mesh.network);
  facts.parameters = with_frozen(
      parameter_specs(inputs.config,
                      experts_of(std::max<Index>(inputs.config.num_experts, 1), mesh.shape().ep, 0)),
      inputs.frozen);
  return decide_run(std::move(facts), run_request(options.kernels, options.mesh, request.flags),
                    options.kernels, request.flags, mesh.world());
}

TrainerSettings with_hooks(TrainerSettings settings, TrainerHooks hooks) {
  settings.hooks = std::move(hooks);
  return settings;
}

}  // namespace

TrainRun::TrainRun(const TrainRequest& request, RunInputs inputs, Mesh mesh, Log& log, bool live)
    : options_(request.options),
      rate_reason_(request.rate_reason),
      inputs_(std::move(inputs)),
      mesh_(std::move(mesh)),
      log_(log),
      progress_(std::cerr, live),
      decided_(decide_training(request, inputs_, mesh_)),
      dispatcher_(open_dispatcher(decision(), mesh_, inputs_.config.num_experts)),
      settings_(trainer_settings(options_, inputs_.config, mesh_.world().size())),
      model_(make_training_state(inputs_.config, mesh_,
                                 {.kernels = decision().table,
                                  .dispatcher = dispatcher_,
                                  .optimizer = options_.optimizer.settings,
                                  .frozen = inputs_.frozen,
                                  .routing = routing_settings(options_)})),
      sampler_(*inputs_.tokens, split_tokens(inputs_.tokens->size(), options_.data.heldout), settings_.batch,
               options_.run.seed),
      trainer_(model_->decoder, model_->store, mesh_, model_->optimizer, sampler_,
               with_hooks(settings_, routing_.hooks())),
      collapse_watch_(inputs_.config.num_experts_per_tok) {}

int TrainRun::run() {
  log_run();
  load();
  plan_trace();
  plan_routing();
  prepare_run_folder(options_, mesh_.world());
  if (trace_) trace_->open();
  routing_.start();
  leave_other_course();
  open_files();
  for (Index step = first_step_; step < options_.run.steps; ++step) {
    const bool sound = one_step_in_memory(step);
    if (signal_ == 0 || !sound) continue;
    if (step + 1 == options_.run.steps) {
      save(step + 1);  // before a validation for which there may be no time
      continue;
    }
    stop(step + 1);
    return kStoppedExitCode;
  }
  progress_.clear();
  finish();
  return 0;
}

bool TrainRun::one_step_in_memory(Index step) {
  try {
    return one_step(step);
  } catch (const std::bad_alloc&) {
    throw Error("no memory is left for the activations of step " + std::to_string(step) +
                "; choose a smaller --seq-len or --global-batch, or more --accumulate");
  }
}

bool TrainRun::one_step(Index step) {
  const StepReport report = train(step);
  if (const auto recorded = routing_.end_step(report)) log_.info(*recorded);
  memory_bytes_ = std::max(memory_bytes_, held_bytes(dispatcher_.memory.get()));
  auto [metrics, signal] = measure_step(report, tokens_seen_, memory_bytes_, signals_.take(), mesh_.world());
  if (signal != 0) signal_ = signal;
  if (!report.skipped) {
    metrics.collapse = collapse_watch_.step(step, report.chosen_per_expert);
    last_rows_ = report.rows_per_expert;
  }
  if (report.row_slices > 1 && !std::exchange(told_of_slices_, true))
    warn_once(Event()
                  .with("step", step)
                  .with("row_slices", report.row_slices)
                  .with("reason", "a rank's rows of a layer were more than --row-budget"));
  tokens_seen_ = metrics.tokens_seen;
  seconds_ += metrics.seconds;
  ++steps_done_;
  const Index done = step + 1;
  if (signal_ == 0 && options_.run.eval_every > 0 && done % options_.run.eval_every == 0 &&
      done < options_.run.steps)
    metrics.val_loss = validate();
  record(metrics);
  if (trace_ && trace_->ends_with(step)) write_trace();
  stop_if_none_is_finite(report);
  const bool save_now = !report.skipped && options_.run.save_every > 0 && done % options_.run.save_every == 0;
  if (save_now && done < options_.run.steps) save(done);
  return !report.skipped;
}

StepReport TrainRun::train(Index step) {
  const auto run = [&] { return trainer_.step(step); };
  return trace_ && trace_->covers(step) ? trace_->record(step, model_->decoder.clock(), run) : run();
}

void TrainRun::write_trace() {
  trace_->write();
  log_.info(Event().with("trace", trace_->path().string()));
}

void TrainRun::stop(Index done) {
  progress_.clear();
  if (trace_ && trace_->pending()) write_trace();
  if (saved_ != done) save(done);
  warn_once(Event()
                .with("stopped", signal_name(signal_))
                .with("step", done)
                .with("go_on", "--resume " + options_.run.folder.string()));
}

void TrainRun::stop_if_none_is_finite(const StepReport& report) {
  skipped_in_a_row_ = report.skipped ? skipped_in_a_row_ + 1 : 0;
  if (skipped_in_a_row_ < kMostSkippedInARow) return;
  progress_.clear();
  throw AgreedError("--on-nan skip gave up: " + std::to_string(kMostSkippedInARow) +
                    " steps in a row were not finite, the last is step " + std::to_string(report.step) +
                    "; lower --lr and --resume a checkpoint of before");
}

void TrainRun::record(const StepMetrics& metrics) {
  agree_on_disk([&] { metrics_->append(metrics); });
  const bool now = metrics.step % options_.run.log_every == 0 || metrics.step + 1 == options_.run.steps;
  if (progress_.live())
    log_.record(step_event(metrics));
  else if (now)
    log_.info(step_event(metrics));
  if (const auto event = collapse_event(metrics.collapse, collapse_watch_.rule())) warn_once(*event);
  const double a_step = seconds_ / static_cast<double>(steps_done_);
  progress_.show({.step = metrics.step + 1,
                  .total = options_.run.steps,
                  .loss = metrics.loss,
                  .tokens_per_s = metrics.tokens_per_s,
                  .seconds_left = a_step * static_cast<double>(options_.run.steps - metrics.step - 1)});
}

}  // namespace moeloom
