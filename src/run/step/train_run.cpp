#include "step/train_run.hpp"

#include "comm/process_memory.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/run/stop_signals.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <new>
#include <utility>

#include "fields/fault.hpp"
#include "open/run_settings.hpp"
#include "step/run_result.hpp"
#include "step/run_start.hpp"
#include "step/sample.hpp"

namespace moeloom {
namespace {

constexpr Index kMostSkippedInARow = 20;      // the run will not come back by itself
constexpr Index kSequencesPerEvaluation = 8;  // of one rank at a time

std::unique_ptr<TrainingState> make_model(const OpenedRun& run, const DispatcherSettings& dispatcher) {
  RoutingSettings routing = routing_settings(run.options);
  routing.row_budget = run.decision.row_budget.rows;
  return make_training_state(run.inputs.config, run.mesh,
                             {.kernels = run.decision.table,
                              .dispatcher = dispatcher,
                              .optimizer = run.options.optimizer.settings,
                              .job = run.decision.job,
                              .frozen = run.inputs.frozen,
                              .routing = routing});
}

TrainerSettings with_hooks(TrainerSettings settings, RunRouting& routing, RunWatch& watch) {
  settings.hooks = routing.hooks();
  settings.hooks.after = [&watch, record = settings.hooks.after](MicroBatchPlace place, const Batch& batch,
                                                                 const Decoder& decoder) {
    record(place, batch, decoder);
    watch.meet_gradients(place.step);
  };
  return settings;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// One rank may meet this alone: it cannot be agreed on.
template <typename Work>
auto in_memory(Index step, Work work) try {
  return work();
} catch (const std::bad_alloc&) {
  throw Error("no memory is left for the activations of step " + std::to_string(step) +
              "; choose a smaller `seq-len` or `global-batch`, or more `accumulate`");
}

}  // namespace

TrainRun::TrainRun(const TrainRequest& request, RunInputs inputs, Mesh mesh, const RunHost& host)
    : run_(request, std::move(inputs), std::move(mesh), host),
      next_step_(run_.first_step()),
      watch_(run_, next_step_),
      dispatcher_(open_dispatcher(run_.decision, run_.mesh, run_.inputs.config.num_experts)),
      model_(make_model(run_, dispatcher_)),
      outputs_(run_.world(), run_.log),
      trainer_(model_->decoder, model_->store, run_.mesh, model_->optimizer, run_.batches.source(),
               with_hooks(run_.settings, routing_, watch_)),
      adapter_watch_(run_, model_->store, model_->optimizer),
      recorder_(run_),
      saver_(run_, *model_, trainer_, watch_) {
  watch_.look_at(*model_, faults_from_text(request.flags.faults).value_or(std::vector<Fault>()));
}

TrainRun::~TrainRun() {
  if (std::uncaught_exceptions() > exceptions_) return;  // other ranks may not come here
  try {
    trainer_.settle();  // MPI writes no weight after the store has gone
  } catch (const std::exception&) {
    // The job is lost, and whoever waits next is told so; a destructor would end the process without a word.
  }
}

void TrainRun::begin() {
  tell_run(run_, model_->store);
  watch_.enter(Activity::kLoading);
  load_weights(run_, *model_);
  plan_trace(run_, trace_);
  plan_routing(run_, routing_);
  take_run_folder(run_.options, run_.inputs, run_.world());
  agree(run_.world(), [&] {
    if (run_.host.begin) run_.host.begin();
  });
  if (trace_) trace_->open();
  routing_.start();
  const OtherCourse left = leave_other_course(run_);
  agree(run_.world(), [&] {
    saver_.open();
    recorder_.open();
    if (run_.is_rank_0()) tell_folder(run_, left);
  });
}

template <typename Work>
auto TrainRun::writing_on(Work work) try {
  return work();
} catch (const AgreedError& error) {
  // Not where a number that is written may be wrong.
  if (error.cause() != Cause::kCorrupt) {
    trainer_.settle();  // MPI writes no weight after the store has gone
    saver_.finish();
  }
  throw;
}

bool TrainRun::step() {
  if (!another()) return false;
  return writing_on([&] {
    const bool sound = in_memory(next_step_, [&] { return one_step(); });
    if (signal_ != 0 && sound) {
      if (another())
        stop();
      else
        saver_.save(done());  // before a validation for which there may be no time
    }
    return another();
  });
}

std::optional<double> TrainRun::evaluate() {
  return writing_on([&] { return validate(); });
}

void TrainRun::save_now() {
  writing_on([&] {
    saver_.finish();
    save_if_sound();
  });
}

void TrainRun::save_if_sound() {
  if (saver_.has(next_step_)) return;
  if (skipped_in_a_row_ > 0)
    return run_.warn_once(Event().with("save", "left out").with("reason", "the last step was skipped"));
  saver_.save(done());
}

RunEnd TrainRun::end() {
  if (!ended_) ended_ = end_once();
  return *ended_;
}

RunEnd TrainRun::end_once() {
  return writing_on([&] {
    if (another()) stop();
    if (!stopped_) finish();
    saver_.end(recorder_.seconds());
    const std::string unsaved = saver_.error(), unrecorded = recorder_.error();
    const bool lines_lost = run_.world().all_max(unrecorded.empty() ? 0 : 1) > 0;
    if (!lines_lost && !outputs_.lost() && unsaved.empty())
      return stopped_ ? RunEnd::kStopped : RunEnd::kDone;
    if (run_.is_rank_0())
      run_.log.error(Event()
                         .with("disk", "failed")
                         .with("last", saver_.newest())
                         .with("reason", !unsaved.empty() ? "the last checkpoint was not saved: " + unsaved
                                         : outputs_.lost()
                                             ? "not everything was written; the lines above say what"
                                             : "metrics.jsonl lacks steps: " + unrecorded));
    return RunEnd::kOutputLost;
  });
}

bool TrainRun::one_step() {
  const RunOptions& asked = run_.options.run;
  const auto train = [&] { return trainer_.step(next_step_); };
  StepReport report = trace_ && trace_->covers(next_step_)
                          ? trace_->record(next_step_, model_->decoder.clock(), train)
                          : train();
  const auto trained = std::chrono::steady_clock::now();
  model_->decoder.clock().enter(Phase::kReport);
  report.add(Phase::kReport, reporting_seconds_);
  if (run_.host.step_took) run_.host.step_took(report.seconds);
  routing_.end_step(report, outputs_, run_.log);
  WorldStep all =
      measure_step(report, recorder_.tokens_seen(),
                   {.memory_bytes = held_bytes(dispatcher_.memory.get()) + model_->store.shared_bytes(),
                    .signal = run_.host.stop ? run_.host.stop() : 0,
                    .save_due = saver_.due(),
                    .part_done = saver_.part_done()},
                   run_.world());
  if (all.signal != 0) signal_ = all.signal;
  adapter_watch_.step(report);
  all.metrics.save_seconds = saver_.take_held();
  ++next_step_;
  if (signal_ == 0 && asked.eval_every > 0 && next_step_ % asked.eval_every == 0 && another()) {
    const auto told = std::chrono::steady_clock::now();
    all.metrics.val_loss = validate();
    all.metrics.eval_seconds = seconds_since(told);
  }
  recorder_.record(report, all.metrics, all.row_slices);
  if (all.metrics.val_loss) recorder_.show();
  if (trace_ && trace_->ends_with(report.step)) write_trace();
  stop_if_none_is_finite(report);
  saver_.after_step(done(), all, !report.skipped);
  reporting_seconds_ = seconds_since(trained) - saver_.held_untold() - all.metrics.eval_seconds;
  return !report.skipped;
}

void TrainRun::stop_if_none_is_finite(const StepReport& report) {
  skipped_in_a_row_ = report.skipped ? skipped_in_a_row_ + 1 : 0;
  if (skipped_in_a_row_ < kMostSkippedInARow) return;
  throw AgreedError("`on-nan` skip gave up: " + std::to_string(kMostSkippedInARow) +
                    " steps in a row were not finite, the last is step " + std::to_string(report.step) +
                    "; lower `lr` and `resume` a checkpoint of before");
}

std::optional<double> TrainRun::validate() {
  watch_.enter(Activity::kValidating);
  const Index ranks = run_.world().size();
  // No more than a micro-batch of a step, for which memory was planned.
  const Index at_once =
      std::min(kSequencesPerEvaluation, run_.settings.batch.sequences_per_micro_batch(ranks));
  const std::vector<Batch> batches =
      run_.batches.heldout(run_.options.run.eval_sequences, at_once, run_.world().rank());
  if (batches.empty()) return std::nullopt;
  return trainer_.evaluate(batches);
}

void TrainRun::write_trace() {
  if (outputs_.write("trace", [&] { trace_->write(); }))
    run_.log.info(Event().with("trace", trace_->path().string()));
}

void TrainRun::stop() {
  stopped_ = true;
  saver_.finish();
  if (trace_ && trace_->pending()) write_trace();
  save_if_sound();
  recorder_.show_stopped();
  run_.warn_once(Event()
                     .with("stopped", signal_ == 0 ? "by its caller" : signal_name(signal_))
                     .with("step", next_step_)
                     .with("go_on", "`resume` " + run_.options.run.folder.string()));
}

void TrainRun::finish() {
  const RunOptions& asked = run_.options.run;
  trainer_.settle();
  RunResult result{.validation = validate()};
  // A broken state is not saved: it would take the place of the last good checkpoint.
  const bool sound = result.validation ? std::isfinite(*result.validation) : skipped_in_a_row_ == 0;
  saver_.finish();
  if (sound && run_.first_step() < asked.steps && !saver_.has(asked.steps)) saver_.save(done());
  watch_.enter(Activity::kEnding);
  if (sound) export_weights(run_, model_->store, outputs_);
  if (sound) result.text = sample(run_, model_->decoder);
  tell_peak(run_, *model_, dispatcher_.memory.get());
  result.last_rows = recorder_.last_rows();
  result.held_untold = saver_.held_untold();
  outputs_.write("report", [&] {
    if (run_.is_rank_0()) write_page(run_, result);
  });
  outputs_.write("result", [&] {
    if (run_.is_rank_0()) tell_result(run_, result);
  });
  if (!sound)
    throw AgreedError(
        (result.validation ? "the validation loss after step " + std::to_string(asked.steps)
                           : "the loss of the last step, " + std::to_string(asked.steps - 1) + ",") +
        " is not finite, and nothing was saved; lower `lr` and `resume` a checkpoint of before");
}

}  // namespace moeloom
