#include "moeloom/app/commands.hpp"
#include "moeloom/app/progress.hpp"
#include "moeloom/app/terminal.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/model/generate.hpp"

#include <iostream>

#include "processors.hpp"
#include "run_report.hpp"

namespace moeloom {
namespace {

constexpr Index kSequencesPerEvaluation = 8;  // of one rank at a time, to bound activations

ExpertRange held_experts(const ModelConfig& config, const Mesh& mesh) {
  const MeshShape& shape = mesh.shape();
  return experts_of(std::max<Index>(config.num_experts, 1), shape.ep, shape.ep_rank(mesh.world().rank()));
}

double aux_coefficient(const TrainOptions& options, const ModelConfig& config) {
  const double of_model = config.output_router_logits ? config.router_aux_loss_coef : 0.0;
  return options.optimizer.aux_loss_coef.value_or(of_model);
}

/// A run from its first step to its report; members in the order in which they need each other.
class TrainRun {
 public:
  TrainRun(const RunRequest& request, RunInputs inputs, Mesh mesh, Log& log, bool live)
      : options_(request.options),
        inputs_(std::move(inputs)),
        mesh_(std::move(mesh)),
        log_(log),
        progress_(std::cerr, live),
        recorded_(recorded_state()),
        kernels_(plan_kernels(options_.kernels, request.flags, inputs_.config, mesh_.shape(), work(),
                              mesh_.world())),
        watch_(watch_of(kernels_)),
        store_(parameter_specs(inputs_.config, held_experts(inputs_.config, mesh_))),
        decoder_(inputs_.config, store_, mesh_, kernels_.table),
        optimizer_(store_, mesh_, options_.optimizer.settings),
        sampler_(*inputs_.tokens, split_tokens(inputs_.tokens->size(), options_.data.heldout),
                 batch_shape(options_, mesh_.world().size()), options_.run.seed),
        trainer_(decoder_, store_, mesh_, optimizer_, sampler_,
                 {.schedule = schedule(options_),
                  .batch = batch_shape(options_, mesh_.world().size()),
                  .aux_loss_coef = aux_coefficient(options_, inputs_.config),
                  .z_loss_coef = options_.optimizer.z_loss_coef,
                  .on_nan = options_.run.on_nan}) {}

  void run() {
    log_run();
    load();
    prepare_run_folder(options_, mesh_.world());
    open_files();
    for (Index step = first_step_; step < options_.run.steps; ++step) one_step(step);
    progress_.clear();
    finish();
  }

 private:
  bool is_rank_0() const { return mesh_.world().rank() == 0; }
  std::filesystem::path in_run(const char* name) const { return options_.run.folder / name; }

  std::optional<TrainerState> recorded_state() const {
    if (!inputs_.resumes) return std::nullopt;
    std::optional<TrainerState> state;
    agree(mesh_.world(),
          [&] { state = TrainerState::from(Document::read(inputs_.weights / "trainer_state.json")); });
    return state;
  }

  KernelWork work() const {
    const BatchShape batch = batch_shape(options_, mesh_.world().size());
    KernelWork work{.tokens = batch.sequences_per_micro_batch() * batch.sequence_length,
                    .uses_per_packing = static_cast<double>(batch.accumulation),
                    .recorded = std::nullopt};
    if (recorded_) work.recorded = GmmDecision{recorded_->gmm_applied, recorded_->gmm_reason};
    return work;
  }

  void log_run() {
    for (const auto& [key, value] : run_facts(options_, inputs_, mesh_)) log_.info(Event().with(key, value));
    log_kernels(log_, kernels_);
  }

  void load() {
    if (inputs_.resumes) {
      const TrainerState state = load_checkpoint(inputs_.weights, store_, optimizer_, mesh_, inputs_.config);
      first_step_ = state.step;
      best_validation_ = state.best_validation_loss;
      warn_if_changed(state);
      log_.info(Event().with("resumed", inputs_.weights.string()).with("step", first_step_));
    } else if (!inputs_.weights.empty()) {
      const WeightCoverage coverage = load_model(inputs_.weights, store_, mesh_, inputs_.config);
      log_.info(Event()
                    .with("loaded", inputs_.weights.string())
                    .with("tensors", coverage.found)
                    .with("expected", coverage.expected)
                    .with("unused", static_cast<Index>(coverage.unused.size())));
    } else {
      initialise(store_, inputs_.config, options_.run.seed);
    }
  }

  void warn_if_changed(const TrainerState& state) {
    const auto warn = [&](const char* what, const auto& then, const auto& now) {
      if (then != now && is_rank_0())
        log_.warn(Event().with("changed", what).with("then", then).with("now", now));
    };
    warn("seed", static_cast<Index>(state.seed), static_cast<Index>(options_.run.seed));
    warn("global-batch", state.global_batch, options_.data.global_batch);
    warn("seq-len", state.sequence_length, options_.data.sequence_length);
    warn("data bytes", state.data_bytes, data_bytes());
  }

  Index data_bytes() const { return static_cast<Index>(std::filesystem::file_size(options_.data.file)); }

  void open_files() {
    agree(mesh_.world(), [&] {
      if (!is_rank_0()) return;
      metrics_.emplace(in_run("metrics.jsonl"), first_step_);
      log_.also_to(in_run("train.log"), inputs_.resumes);
    });
  }

  void one_step(Index step) {
    const StepReport report = trainer_.step(step);
    StepMetrics metrics = measure_step(report, mesh_.world());
    seconds_ += metrics.seconds;
    ++steps_done_;
    const Index done = step + 1;
    if (watch_ && !watch_->done() && !metrics.skipped) watch_experts(metrics);
    if (options_.run.eval_every > 0 && done % options_.run.eval_every == 0 && done < options_.run.steps)
      metrics.val_loss = validate();
    record(metrics);
    const bool save_now = options_.run.save_every > 0 && done % options_.run.save_every == 0;
    if (save_now && done < options_.run.steps) save(done);
  }

  /// The metrics are the mean over ranks and the same on every rank, so that the switch is, too.
  void watch_experts(const StepMetrics& metrics) {
    const auto sparse = std::ranges::count_if(
        decoder_.layers(), [](const DecoderLayer& layer) { return layer.moe() != nullptr; });
    const auto parts = static_cast<double>(sparse * options_.data.accumulate);
    const GmmNews news = watch_->after_step(
        metrics.step + 1, metrics.seconds_by_phase.at(std::string(name_of(Phase::kExperts))) / parts);
    for (const Event& event : events_of(news)) log_.info(event);
    if (news.decision)
      revise(kernels_, *news.decision);
    else if (news.use_grouped)
      use_path(kernels_, *news.use_grouped);
    decoder_.use(kernels_.table);
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
    const double loss = trainer_.evaluate(batches);
    best_validation_ = std::min(best_validation_.value_or(loss), loss);
    return loss;
  }

  void save(Index done) {
    TrainerState state;
    state.step = done;
    state.seed = options_.run.seed;
    state.data_file = options_.data.file.string();
    state.data_bytes = data_bytes();
    state.global_batch = options_.data.global_batch;
    state.sequence_length = options_.data.sequence_length;
    for (const KernelReport& report : kernels_.reports)
      if (report.applied) state.kernels.push_back(report.id);
    state.gmm_applied = kernels_.gmm.apply;
    state.gmm_reason = recorded_ ? recorded_->gmm_reason : kernels_.gmm.reason;
    state.best_validation_loss = best_validation_;
    const auto path = save_checkpoint(options_.run.folder, store_, optimizer_, mesh_, inputs_.config, state);
    agree_on_disk([&] { prune_checkpoints(options_.run.folder, options_.run.keep); });
    log_.info(Event().with("saved", path.string()));
  }

  std::string sample() {
    if (options_.run.sample_chars == 0 || inputs_.format != TokenFormat::kText) return {};
    const std::string& prompt = options_.run.prompt;
    std::vector<std::int32_t> ids;
    for (const char c : prompt) ids.push_back(static_cast<unsigned char>(c));
    const auto text = generate(decoder_, mesh_, ids, options_.run.sample_chars,
                               {.temperature = 0.8, .top_k = 0, .seed = options_.run.seed});
    std::string bytes;
    for (std::size_t i = ids.size(); i < text.size(); ++i) bytes.push_back(static_cast<char>(text[i]));
    return bytes;
  }

  void finish() {
    const std::optional<double> validation = validate();
    if (first_step_ < options_.run.steps) save(options_.run.steps);
    const std::string text = sample();
    agree_on_disk([&] {
      ReportInfo info;
      info.title = "moeloom: " + options_.run.folder.filename().string();
      info.facts = run_facts(options_, inputs_, mesh_);
      info.kernels = kernels_.reports;
      info.gmm_request = kernels_.gmm_request;
      info.gmm = kernels_.gmm;
      info.validation_loss = validation;
      info.loss_unit = "nats per " + inputs_.unit();
      info.prompt = options_.run.prompt;
      info.sample = printable(text);
      info.configuration = resolved_config(options_);
      const double train = mean_of_last_steps();
      info.train_loss = train;
      write_report(in_run("report.html"), in_run("metrics.jsonl"), info);
      print_result(train, validation, text);
    });
  }

  /// Mean loss of the last tenth of the steps, at most 50.
  double mean_of_last_steps() const {
    const std::vector<StepMetrics> all = read_metrics(in_run("metrics.jsonl"));
    const std::size_t count =
        std::clamp<std::size_t>(all.size() / 10, std::min<std::size_t>(all.size(), 1), 50);
    double sum = 0;
    for (std::size_t i = all.size() - count; i < all.size(); ++i) sum += all[i].loss;
    return count == 0 ? 0 : sum / static_cast<double>(count);
  }

  void print_result(double train, const std::optional<double>& validation, const std::string& text) {
    Event result;
    result.with("train_loss", train);
    if (validation) result.with("val_loss", *validation);
    result.with("unit", "nats per " + inputs_.unit()).with("steps", options_.run.steps);
    log_.info(result);
    if (!text.empty()) std::cout << options_.run.prompt << printable(text) << "\n";
    log_.info(Event().with("report", in_run("report.html").string()));
  }

  const TrainOptions options_;
  const RunInputs inputs_;
  const Mesh mesh_;
  Log& log_;
  ProgressLine progress_;
  const std::optional<TrainerState> recorded_;
  KernelPlan kernels_;
  std::optional<GmmWatch> watch_;
  ParameterStore store_;
  Decoder decoder_;
  ShardedOptimizer optimizer_;
  BatchSampler sampler_;
  Trainer trainer_;
  std::optional<MetricsWriter> metrics_;  // rank 0
  std::optional<double> best_validation_;
  Index first_step_ = 0;
  Index steps_done_ = 0;
  double seconds_ = 0;
};

}  // namespace

int train_command(int argc, char** argv) {
  Communicator world = Communicator::world();
  const RunRequest request = agree_on_request(argc, argv, world);
  if (request.options.help) {
    if (world.rank() == 0) std::cout << train_help();
    return 0;
  }
  const RunOptions& run = request.options.run;
  const bool live = world.rank() == 0 && progress_is_live(run.progress, run.quiet, stderr_is_watched());
  Log log({.rank = world.rank(), .level = request.flags.log_level, .quiet = run.quiet, .live_line = live});
  RunInputs inputs = open_inputs(request.options, world);
  const MeshShape shape = mesh_shape(request.options.mesh, world.size());
  Mesh mesh(std::move(world), shape);
  set_threads(threads_for(request.options.kernels.threads, mesh.node()));
  TrainRun(request, std::move(inputs), std::move(mesh), log, live).run();
  return 0;
}

}  // namespace moeloom
