#include "step/train_run.hpp"

#include "base/violations.hpp"
#include "comm/process_memory.hpp"
#include "io/disk_memory.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/run/stop_signals.hpp"
#include "train/starved_parameters.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "fields/fault.hpp"
#include "fields/option_values.hpp"
#include "open/memory_ceiling.hpp"
#include "open/processors.hpp"
#include "open/run_settings.hpp"
#include "summary/run_report.hpp"

namespace moeloom {
namespace {

constexpr Index kMostSkippedInARow = 20;  // the run will not come back by itself
constexpr Index kStepsToLearn = 10;       // after which every factor of an adapter has had a gradient

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
RunDecision decide_training(const TrainRequest& request, const RunInputs& inputs, const RunBatches& batches,
                            const Mesh& mesh) {
  const TrainOptions& options = request.options;
  const Job job{.batch = options.batch,
                .keeping = options.keeping,
                .layout = {.threads = threads(), .pretended_nodes = request.flags.pretended_nodes}};
  RunFacts facts = find_run_facts(inputs.config, mesh, job);
  if (const auto& recorded = inputs.recorded)
    facts.recorded = GmmDecision{recorded->gmm_applied, recorded->gmm_reason};
  if (options.mesh.network.bytes_per_second > 0) use_network(facts, options.mesh.network);
  const ExpertRange most_experts =
      experts_of(std::max<Index>(inputs.config.num_experts, 1), mesh.shape().ep, 0);
  facts.parameters = kept_specs(inputs.config, most_experts, inputs.frozen, options.keeping);
  facts.data_bytes = static_cast<double>(batches.most_bytes());
  facts.program_bytes =
      mesh.world().all_max(static_cast<double>(std::max<Index>(private_bytes() - batches.held_bytes(), 0)));
  RunRequest asked = run_request(options.kernels, options.mesh.exchange, request.flags);
  asked.row_budget = options.router.row_budget;
  asked.memory_ceiling = options.run.memory_bytes;
  asked.save_copy = saves_before_the_end(options.run) ? options.run.async_save : std::optional(false);
  RunDecision decision = decide_run(facts, asked, mesh.world());
  const double left = static_cast<double>(available_memory()) / static_cast<double>(mesh.node().size());
  const double least_left = -mesh.world().all_max(-left);
  agree(mesh.world(), [&] {
    require_offload(options.keeping.offload, facts.parameters);
    require_within_ceiling(facts, decision, inputs.frozen);
    if (options.run.memory_bytes == 0) require_within_node(facts, decision, inputs.frozen, least_left);
  });
  return decision;
}

RoutingSettings within(RoutingSettings settings, const RowBudgetDecision& budget) {
  settings.row_budget = budget.rows;
  return settings;
}

TrainerSettings with_hooks(TrainerSettings settings, TrainerHooks hooks) {
  settings.hooks = std::move(hooks);
  return settings;
}

}  // namespace

TrainRun::TrainRun(const TrainRequest& request, RunInputs inputs, Mesh mesh, const RunHost& host)
    : options_(request.options),
      rate_reason_(request.rate_reason),
      inputs_(std::move(inputs)),
      mesh_(std::move(mesh)),
      host_(host),
      log_(host),
      own_board_(host.board == nullptr ? std::make_unique<PositionBoard>() : nullptr),
      board_(host.board == nullptr ? *own_board_ : *host.board),
      settings_(trainer_settings(options_, inputs_.config)),
      batches_(inputs_.data, options_, mesh_.world().size()),
      decided_(decide_training(request, inputs_, batches_, mesh_)),
      dispatcher_(open_dispatcher(decision(), mesh_, inputs_.config.num_experts)),
      model_(make_training_state(inputs_.config, mesh_,
                                 {.kernels = decision().table,
                                  .dispatcher = dispatcher_,
                                  .optimizer = options_.optimizer.settings,
                                  .job = decision().job,
                                  .frozen = inputs_.frozen,
                                  .routing = within(routing_settings(options_), decision().row_budget)})),
      trainer_(model_->decoder, model_->store, mesh_, model_->optimizer, batches_.source(),
               with_hooks(settings_, hooks())),
      collapse_watch_(inputs_.config.num_experts_per_tok),
      save_clock_(options_.run.save_minutes, std::chrono::steady_clock::now()),
      background_(model_->store, model_->optimizer, mesh_, inputs_.config) {
  arm_faults(faults_from_text(request.flags.faults).value_or(std::vector<Fault>()));
}

void TrainRun::enter(Activity activity) {
  board_.enter(activity);
  if (faults_) faults_->meet(board_.read(), first_step_ + steps_done_);
}

void TrainRun::arm_faults(const std::vector<Fault>& faults) {
  PhaseClock& clock = model_->decoder.clock();
  clock.show_on(&board_);
  std::vector<Fault> mine = faults;
  std::erase_if(mine, [&](const Fault& fault) { return fault.rank != mesh_.world().rank(); });
  if (mine.empty()) return;
  faults_.emplace(std::move(mine), in_run("faults.log"), model_->store);
  clock.on_enter([this] { faults_->meet(board_.read(), first_step_ + steps_done_); });
}

TrainerHooks TrainRun::hooks() {
  TrainerHooks hooks = routing_.hooks();
  hooks.after = [this, after = hooks.after](MicroBatchPlace place, const Batch& batch,
                                            const Decoder& decoder) {
    after(place, batch, decoder);
    if (faults_) faults_->meet_gradients(place.step);
  };
  return hooks;
}

void TrainRun::begin() {
  log_run();
  load();
  plan_trace();
  plan_routing();
  lock_ = prepare_run_folder(options_, inputs_, mesh_.world());
  if (host_.begin) host_.begin();
  if (trace_) trace_->open();
  routing_.start();
  leave_other_course();
  open_files();
  save_clock_.restart(std::chrono::steady_clock::now());
  start_seconds_ = wall_clock() - host_.started;
}

template <typename Work>
auto TrainRun::writing_on(Work work) try {
  return work();
} catch (const AgreedError& error) {
  // Not where a number that is written may be wrong.
  if (error.cause() != Cause::kCorrupt) {
    trainer_.settle();  // MPI writes no weight after the store has gone
    finish_save();
  }
  throw;
}

bool TrainRun::step() {
  const auto another = [&] { return !stopped_ && next_step() < options_.run.steps; };
  if (!another()) return false;
  return writing_on([&] {
    const bool sound = one_step_in_memory(next_step());
    if (signal_ != 0 && sound) {
      if (another())
        stop(next_step());
      else
        save(next_step());  // before a validation for which there may be no time
    }
    return another();
  });
}

std::optional<double> TrainRun::evaluate() {
  return writing_on([&] { return validate(); });
}

void TrainRun::save_now() {
  writing_on([&] {
    finish_save();
    if (saved_ == next_step()) return;
    if (skipped_in_a_row_ > 0)
      return warn_once(Event().with("save", "left out").with("reason", "the last step was skipped"));
    save(next_step());
  });
}

RunEnd TrainRun::end() {
  return writing_on([&] {
    if (!stopped_ && next_step() < options_.run.steps) stop(next_step());
    if (!stopped_) finish();
    return end_as(stopped_ ? RunEnd::kStopped : RunEnd::kDone);
  });
}

bool TrainRun::one_step_in_memory(Index step) {
  try {
    return one_step(step);
  } catch (const std::bad_alloc&) {
    throw Error("no memory is left for the activations of step " + std::to_string(step) +
                "; choose a smaller `seq-len` or `global-batch`, or more `accumulate`");
  }
}

bool TrainRun::one_step(Index step) {
  const StepReport report = train(step);
  if (host_.step_took) host_.step_took(report.seconds);
  if (routing_.records(step) && !write_output("recording", [&] {
        if (const auto recorded = routing_.end_step(report)) log_.info(*recorded);
      }))
    routing_.give_up();
  memory_bytes_ =
      std::max(memory_bytes_, held_bytes(dispatcher_.memory.get()) + model_->store.shared_bytes());
  auto [metrics, signal, save_due, parts_done] = measure_step(report, tokens_seen_, news(), mesh_.world());
  if (signal != 0) signal_ = signal;
  if (inputs_.config.adapter && steps_done_ < kStepsToLearn) watch_adapter(report);
  if (!report.skipped) {
    metrics.collapse = collapse_watch_.step(step, report.chosen_per_expert);
    last_rows_ = report.rows_per_expert;
  }
  if (report.row_slices > 1 && !std::exchange(told_of_slices_, true))
    warn_once(Event()
                  .with("step", step)
                  .with("row_slices", report.row_slices)
                  .with("reason", "a rank's rows of a layer were more than row budget = " +
                                      std::to_string(decision().row_budget.rows)));
  metrics.start_seconds = std::exchange(start_seconds_, 0);
  metrics.save_seconds = held_seconds_ - std::exchange(held_told_, held_seconds_);
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
  if (parts_done) go_on_saving();
  if (steps_done_ == 1 && saves_before_the_end(options_.run))
    saves_in_background();  // its memory is there by the first save
  // By the clock it may as well be a step later: a save under way is not waited for.
  save_due &= !background_.busy();
  save_due |= options_.run.save_every > 0 && done % options_.run.save_every == 0;
  if (save_due && !report.skipped && done < options_.run.steps) begin_save(done);
  return !report.skipped;
}

RankNews TrainRun::news() {
  return {.memory_bytes = memory_bytes_,
          .signal = host_.stop ? host_.stop() : 0,
          .save_due = is_rank_0() && save_clock_.due(std::chrono::steady_clock::now()),
          .part_done = background_.busy() && background_.part_done()};
}

void TrainRun::watch_adapter(const StepReport& report) {
  adapted_rows_.resize(report.rows_per_expert.size());
  for (std::size_t layer = 0; layer < adapted_rows_.size(); ++layer) {
    adapted_rows_[layer].resize(report.rows_per_expert[layer].size());
    for (std::size_t expert = 0; expert < adapted_rows_[layer].size(); ++expert)
      adapted_rows_[layer][expert] += report.rows_per_expert[layer][expert];
  }
  if (steps_done_ + 1 < kStepsToLearn) return;
  const auto idle = without_gradient(model_->store, model_->optimizer, mesh_, adapted_rows_);
  const auto starved = std::ranges::count_if(idle, &NoGradient::starved);
  if (starved > 0)
    warn_once(
        Event()
            .with("adapter", "not trained yet")
            .with("experts' factors", static_cast<Index>(starved))
            .with("reason", "no token chose these experts in " + std::to_string(kStepsToLearn) + " steps"));
  const auto lost = std::ranges::find_if(idle, [](const NoGradient& one) { return !one.starved; });
  if (lost == idle.end()) return;
  throw AgreedError(lost->parameter + (lost->expert < 0 ? "" : " of expert " + std::to_string(lost->expert)) +
                    " is trained, but had no gradient in " + std::to_string(kStepsToLearn) + " steps (" +
                    std::to_string(std::ssize(idle) - starved) +
                    " factors in all): nothing of the loss depends on it");
}

StepReport TrainRun::train(Index step) {
  const auto run = [&] { return trainer_.step(step); };
  return trace_ && trace_->covers(step) ? trace_->record(step, model_->decoder.clock(), run) : run();
}

void TrainRun::stop(Index done) {
  stopped_ = true;
  finish_save();
  if (trace_ && trace_->pending()) write_trace();
  if (saved_ != done) save(done);
  warn_once(Event()
                .with("stopped", signal_ == 0 ? "by its caller" : signal_name(signal_))
                .with("step", done)
                .with("go_on", "`resume` " + options_.run.folder.string()));
}

void TrainRun::stop_if_none_is_finite(const StepReport& report) {
  skipped_in_a_row_ = report.skipped ? skipped_in_a_row_ + 1 : 0;
  if (skipped_in_a_row_ < kMostSkippedInARow) return;
  throw AgreedError("`on-nan` skip gave up: " + std::to_string(kMostSkippedInARow) +
                    " steps in a row were not finite, the last is step " + std::to_string(report.step) +
                    "; lower `lr` and `resume` a checkpoint of before");
}

void TrainRun::record(const StepMetrics& metrics) {
  write_line(metrics);
  const bool now = metrics.step % options_.run.log_every == 0 || metrics.step + 1 == options_.run.steps;
  if (host_.progress)
    log_.record(step_event(metrics, settings_.aux_loss_coef));
  else if (now)
    log_.info(step_event(metrics, settings_.aux_loss_coef));
  if (const auto event = collapse_event(metrics.collapse, collapse_watch_.rule())) warn_once(*event);
  const double a_step = seconds_ / static_cast<double>(steps_done_);
  if (host_.progress)
    host_.progress({.step = metrics.step + 1,
                    .total = options_.run.steps,
                    .loss = metrics.loss,
                    .tokens_per_s = metrics.tokens_per_s,
                    .seconds_left = a_step * static_cast<double>(options_.run.steps - metrics.step - 1)});
}

}  // namespace moeloom
