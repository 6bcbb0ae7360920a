#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/process_memory.hpp"
#include "moeloom/model/generate.hpp"
#include "moeloom/train/training_state.hpp"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <new>

#include "cli/option_values.hpp"
#include "cli/processors.hpp"
#include "cli/terminal.hpp"
#include "commands/commands.hpp"
#include "run/model_source.hpp"
#include "run/progress.hpp"
#include "run/run_decision.hpp"
#include "run/run_folder.hpp"
#include "run/run_report.hpp"
#include "run/run_settings.hpp"
#include "run/sample.hpp"
#include "run/stop_signals.hpp"
#include "run/trace.hpp"

namespace moeloom {
namespace {

constexpr Index kMostSkippedInARow = 20;      // the run will not come back by itself
constexpr Index kSequencesPerEvaluation = 8;  // of one rank at a time, to bound activations

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

/// A run from its first step to its report; members in the order in which they need each other.
class TrainRun {
 public:
  TrainRun(const TrainRequest& request, RunInputs inputs, Mesh mesh, Log& log, bool live)
      : options_(request.options),
        rate_reason_(request.rate_reason),
        inputs_(std::move(inputs)),
        mesh_(std::move(mesh)),
        log_(log),
        progress_(std::cerr, live),
        decided_(decide_training(request, inputs_, mesh_)),
        dispatcher_(open_dispatcher(decision(), run_request(options_.kernels, options_.mesh, request.flags),
                                    mesh_, inputs_.config.num_experts)),
        settings_(trainer_settings(options_, inputs_.config, mesh_.world().size())),
        model_(make_training_state(inputs_.config, mesh_,
                                   {.kernels = decision().table,
                                    .dispatcher = dispatcher_,
                                    .optimizer = options_.optimizer.settings,
                                    .frozen = inputs_.frozen})),
        sampler_(*inputs_.tokens, split_tokens(inputs_.tokens->size(), options_.data.heldout),
                 settings_.batch, options_.run.seed),
        trainer_(model_->decoder, model_->store, mesh_, model_->optimizer, sampler_, settings_) {}

  /// -> the exit code
  int run() {
    log_run();
    load();
    plan_trace();
    prepare_run_folder(options_, mesh_.world());
    if (trace_) trace_->open();
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

 private:
  const RunDecision& decision() const { return decided_.decision; }
  bool is_rank_0() const { return mesh_.world().rank() == 0; }
  std::filesystem::path in_run(const char* name) const { return options_.run.folder / name; }

  void log_run() {
    for (const auto& [key, value] : run_facts(options_, inputs_, mesh_)) log_.info(Event().with(key, value));
    if (!rate_reason_.empty()) log_.info(rate_event(settings_.schedule, rate_reason_));
    log_decision(log_, decided_);
  }

  void load() {
    ParameterStore& store = model_->store;
    if (!inputs_.weights.empty())
      if (const auto event = missing_towers(inputs_)) warn_once(*event);
    if (inputs_.resumes) {
      const TrainerState state =
          load_checkpoint(inputs_.weights, store, model_->optimizer, mesh_, inputs_.config);
      first_step_ = state.step;
      for (const Event& change : changes_between(state, state_at(first_step_))) warn_once(change);
      log_.info(Event()
                    .with("resumed", inputs_.weights.string())
                    .with("step", first_step_)
                    .with("carried", static_cast<Index>(inputs_.config.names.carried.names.size())));
    } else if (!inputs_.weights.empty()) {
      load_weights_alone();
    } else {
      initialise(store, inputs_.config, options_.run.seed);
      if (const std::filesystem::path& folder = options_.model.folder; !folder.empty())
        warn_once(
            Event().with("weights", "initial").with("reason", folder.string() + " holds config.json only"));
    }
  }

  void load_weights_alone() {
    const NamePatterns& allowed = options_.model.allow_missing;
    if (!allowed.empty()) initialise(model_->store, inputs_.config, options_.run.seed);
    const WeightCoverage coverage =
        load_model(inputs_.weights, model_->store, mesh_, inputs_.config, allowed);
    log_.info(event_of(coverage, inputs_.weights));
    if (!coverage.unused.empty()) log_.info(Event().with("unused", joined(coverage.unused)));
    if (!coverage.missing.empty())
      warn_once(Event().with("missing", joined(coverage.missing)).with("weights", "initial"));
  }

  void warn_once(const Event& event) {
    if (is_rank_0()) log_.warn(event);
  }

  /// What a resumed run did after the step that it goes on from is no longer its past. Checkpoints go before
  /// metrics: a kill between the two leaves lines too many, which the next resume drops.
  void leave_other_course() {
    agree_on_disk([&] {
      if (!goes_on_in_its_folder(options_.run)) return;
      for (const auto& checkpoint : remove_checkpoints_after(options_.run.folder, first_step_))
        left_.push_back(checkpoint.filename().string());
    });
  }

  Index data_bytes() const { return static_cast<Index>(std::filesystem::file_size(options_.data.file)); }

  void open_files() {
    agree(mesh_.world(), [&] {
      if (!is_rank_0()) return;
      metrics_.emplace(in_run("metrics.jsonl"), first_step_);
      if (const auto& recorded = inputs_.recorded)
        tokens_seen_ = tokens_before(read_metrics(in_run("metrics.jsonl")), *recorded);
      log_.also_to(in_run("train.log"), inputs_.resumes);
      if (left_.empty()) return;
      log_.info(Event()
                    .with("removed", joined(left_))
                    .with("reason", "later than step " + std::to_string(first_step_) +
                                        ", from which the run takes another course"));
    });
  }

  /// One rank may meet this alone: it cannot be agreed on.
  bool one_step_in_memory(Index step) {
    try {
      return one_step(step);
    } catch (const std::bad_alloc&) {
      throw Error("no memory is left for the activations of step " + std::to_string(step) +
                  "; choose a smaller --seq-len or --global-batch, or more --accumulate");
    }
  }

  /// -> whether the weights may be saved: those that gave no finite step may be broken themselves, and must
  /// not replace good ones on the disk.
  bool one_step(Index step) {
    const StepReport report = train(step);
    memory_bytes_ = std::max(memory_bytes_, held_bytes(dispatcher_.memory.get()));
    auto [metrics, signal] =
        measure_step(report, tokens_seen_, memory_bytes_, signals_.take(), mesh_.world());
    if (signal != 0) signal_ = signal;
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
    const bool save_now =
        !report.skipped && options_.run.save_every > 0 && done % options_.run.save_every == 0;
    if (save_now && done < options_.run.steps) save(done);
    return !report.skipped;
  }

  StepReport train(Index step) {
    const auto run = [&] { return trainer_.step(step); };
    return trace_ && trace_->covers(step) ? trace_->record(step, model_->decoder.clock(), run) : run();
  }

  /// Before the run's folder is touched: the steps may not be those of this run.
  void plan_trace() {
    const TraceOptions& trace = options_.run.trace;
    if (trace.file.empty()) return;
    agree(mesh_.world(), [&] { trace_.emplace(trace, StepRange{first_step_, options_.run.steps}, mesh_); });
  }

  void write_trace() {
    trace_->write();
    log_.info(Event().with("trace", trace_->path().string()));
  }

  void stop(Index done) {
    progress_.clear();
    if (trace_ && trace_->pending()) write_trace();
    if (saved_ != done) save(done);
    warn_once(Event()
                  .with("stopped", signal_name(signal_))
                  .with("step", done)
                  .with("go_on", "--resume " + options_.run.folder.string()));
  }

  void stop_if_none_is_finite(const StepReport& report) {
    skipped_in_a_row_ = report.skipped ? skipped_in_a_row_ + 1 : 0;
    if (skipped_in_a_row_ < kMostSkippedInARow) return;
    progress_.clear();
    throw AgreedError("--on-nan skip gave up: " + std::to_string(kMostSkippedInARow) +
                      " steps in a row were not finite, the last is step " + std::to_string(report.step) +
                      "; lower --lr and --resume a checkpoint of before");
  }

  void record(const StepMetrics& metrics) {
    agree_on_disk([&] { metrics_->append(metrics); });
    const bool now = metrics.step % options_.run.log_every == 0 || metrics.step + 1 == options_.run.steps;
    if (progress_.live())
      log_.record(step_event(metrics));
    else if (now)
      log_.info(step_event(metrics));
    const double a_step = seconds_ / static_cast<double>(steps_done_);
    progress_.show({.step = metrics.step + 1,
                    .total = options_.run.steps,
                    .loss = metrics.loss,
                    .tokens_per_s = metrics.tokens_per_s,
                    .seconds_left = a_step * static_cast<double>(options_.run.steps - metrics.step - 1)});
  }

  /// What rank 0 alone writes; a full disk there stops every rank in order.
  template <typename Write>
  void agree_on_disk(Write write) {
    agree(mesh_.world(), [&] {
      if (is_rank_0()) write();
    });
  }

  std::optional<double> validate() {
    const std::vector<Batch> batches =
        sampler_.heldout(options_.run.eval_sequences, kSequencesPerEvaluation, mesh_.world().rank());
    if (batches.empty()) return std::nullopt;
    return trainer_.evaluate(batches);
  }

  TrainerState state_at(Index step) const {
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
    return state;
  }

  void save(Index done) {
    const auto path = save_checkpoint({options_.run.folder, options_.run.shard_bytes}, model_->store,
                                      model_->optimizer, mesh_, inputs_.config, state_at(done));
    agree_on_disk([&] { prune_checkpoints(options_.run.folder, options_.run.keep, done); });
    log_.info(Event().with("saved", path.string()));
    saved_ = done;
  }

  void export_weights() {
    const std::filesystem::path& folder = options_.run.export_folder;
    export_model(folder, model_->store, mesh_, inputs_.config,
                 {.shard_bytes = options_.run.shard_bytes, .dtype = options_.run.export_dtype});
    log_.info(Event()
                  .with("exported", folder.string())
                  .with("dtype", std::string(dtype_text(options_.run.export_dtype))));
  }

  std::string sample() {
    if (options_.run.sample_chars == 0) return {};
    const std::string reason = why_no_sample(options_.run, inputs_.format, inputs_.config);
    if (!reason.empty()) {
      log_.info(Event().with("sample", false).with("reason", reason));
      return {};
    }
    return sample_text(model_->decoder, mesh_, decision().table, options_.run);
  }

  void finish() {
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

  void print_result(const std::optional<double>& validation, const std::string& text) {
    const std::vector<StepMetrics> steps = read_metrics(in_run("metrics.jsonl"));
    log_.info(result_event(steps, validation, inputs_.unit(), options_.run));
    if (!text.empty()) std::cout << options_.run.prompt << printable(text) << "\n";
    log_.info(Event().with("report", in_run("report.html").string()));
  }

  const TrainOptions options_;
  const std::string rate_reason_;
  const RunInputs inputs_;
  const Mesh mesh_;
  Log& log_;
  ProgressLine progress_;
  const DecidedRun decided_;
  const DispatcherSettings dispatcher_;
  const TrainerSettings settings_;
  const std::unique_ptr<TrainingState> model_;
  BatchSampler sampler_;
  Trainer trainer_;
  StopSignals signals_;
  std::optional<Trace> trace_;
  std::optional<MetricsWriter> metrics_;  // rank 0
  std::vector<std::string> left_;         // names of checkpoints of another course; rank 0
  Index first_step_ = 0;
  Index steps_done_ = 0;
  Index memory_bytes_ = 0;  // the most that this rank held at the end of a step
  Index skipped_in_a_row_ = 0;
  Index saved_ = -1;       // the step of the last checkpoint
  int signal_ = 0;         // that asks the run to stop; 0: none
  Index tokens_seen_ = 0;  // rank 0
  double seconds_ = 0;
};

}  // namespace

int train_command(int argc, char** argv) {
  Communicator world = Communicator::world();
  auto [request, inputs] = agree_on_run(argc, argv, world);
  const RunOptions& run = request.options.run;
  const bool live = world.rank() == 0 && progress_is_live(run.progress, run.quiet, stderr_is_watched());
  Log log({.rank = world.rank(), .level = request.flags.log_level, .quiet = run.quiet, .live_line = live});
  const MeshShape shape = mesh_shape(request.options.mesh, world.size());
  Mesh mesh(std::move(world), shape);
  set_threads(threads_for(request.options.kernels.threads, request.flags.threads, mesh.node()));
  return TrainRun(request, std::move(inputs), std::move(mesh), log, live).run();
}

}  // namespace moeloom
