// A training run from its first step to its report, on every rank.
#pragma once

#include "moeloom/train/collapse_watch.hpp"
#include "moeloom/train/training_state.hpp"

#include "run/log.hpp"
#include "run/metrics.hpp"
#include "run/progress.hpp"
#include "run/run_decision.hpp"
#include "run/run_routing.hpp"
#include "run/run_setup.hpp"
#include "run/stop_signals.hpp"
#include "run/trace.hpp"

namespace moeloom {

/// Members in the order in which they need each other. All of it is collective over the world.
class TrainRun {
 public:
  TrainRun(const TrainRequest& request, RunInputs inputs, Mesh mesh, Log& log, bool live);

  /// -> the exit code
  int run();

 private:
  const RunDecision& decision() const { return decided_.decision; }
  bool is_rank_0() const { return mesh_.world().rank() == 0; }
  std::filesystem::path in_run(const char* name) const { return options_.run.folder / name; }
  Index data_bytes() const { return static_cast<Index>(std::filesystem::file_size(options_.data.file)); }
  /// What rank 0 alone writes; a full disk there stops every rank in order.
  template <typename Write>
  void agree_on_disk(Write write) {
    agree(mesh_.world(), [&] {
      if (is_rank_0()) write();
    });
  }

  // Before the first step (train_run_start.cpp).
  void log_run();
  void load();
  void load_weights_alone();
  void warn_once(const Event& event);
  /// What a resumed run did after the step that it goes on from is no longer its past. Checkpoints go before
  /// metrics: a kill between the two leaves lines too many, which the next resume drops.
  void leave_other_course();
  void open_files();
  /// Before the run's folder is touched: the steps may not be those of this run.
  void plan_trace();
  void plan_routing();

  // A step (train_run.cpp).
  /// One rank may meet this alone: it cannot be agreed on.
  bool one_step_in_memory(Index step);
  /// -> whether the weights may be saved: those that gave no finite step may be broken themselves, and must
  /// not replace good ones on the disk.
  bool one_step(Index step);
  StepReport train(Index step);
  void write_trace();
  void stop(Index done);
  void stop_if_none_is_finite(const StepReport& report);
  void record(const StepMetrics& metrics);
  /// The collapses that this run's folder tells of are not told again.
  void go_on_watching(const std::vector<StepMetrics>& earlier);

  // What is kept and said of it (train_run_end.cpp).
  std::optional<double> validate();
  TrainerState state_at(Index step) const;
  void save(Index done);
  void export_weights();
  std::string sample();
  void finish();
  void print_result(const std::optional<double>& validation, const std::string& text);

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
  RunRouting routing_;
  Trainer trainer_;
  CollapseWatch collapse_watch_;
  std::vector<std::vector<Index>> last_rows_;  // [layer][E], of the last step that was not skipped
  StopSignals signals_;
  std::optional<Trace> trace_;
  std::optional<MetricsWriter> metrics_;  // rank 0
  std::vector<std::string> left_;         // names of checkpoints of another course; rank 0
  Index first_step_ = 0;
  Index steps_done_ = 0;
  Index memory_bytes_ = 0;  // the most that this rank held at the end of a step
  Index skipped_in_a_row_ = 0;
  bool told_of_slices_ = false;
  Index saved_ = -1;       // the step of the last checkpoint
  int signal_ = 0;         // that asks the run to stop; 0: none
  Index tokens_seen_ = 0;  // rank 0
  double seconds_ = 0;
};

}  // namespace moeloom
