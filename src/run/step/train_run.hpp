// A training run from its first step to its report, on every rank.
#pragma once

#include "moeloom/run/training.hpp"
#include "train/checkpoint/background_save.hpp"
#include "train/collapse_watch.hpp"
#include "train/training_state.hpp"

#include <future>

#include "open/run_decision.hpp"
#include "open/run_setup.hpp"
#include "record/log.hpp"
#include "record/metrics.hpp"
#include "record/trace.hpp"
#include "step/run_routing.hpp"
#include "step/save_clock.hpp"
#include "summary/run_report.hpp"
#include "summary/run_time.hpp"
#include "watch/fault_injector.hpp"

namespace moeloom {

/// Whether checkpoints are asked for besides the last.
inline bool saves_before_the_end(const RunOptions& run) {
  return run.save_minutes > 0 || (run.save_every > 0 && run.save_every < run.steps);
}

/// Members in the order in which they need each other. All of it is collective over the world.
class TrainRun {
 public:
  /// `host`: until the run has gone.
  TrainRun(const TrainRequest& request, RunInputs inputs, Mesh mesh, const RunHost& host);

  /// All that comes before the first step.
  void begin();
  Index next_step() const { return first_step_ + steps_done_; }
  /// -> whether there is another one.
  bool step();
  std::optional<double> evaluate();
  void save_now();
  /// After the last step, or a stop.
  RunEnd end();

 private:
  const RunDecision& decision() const { return decided_; }
  bool is_rank_0() const { return mesh_.world().rank() == 0; }
  std::filesystem::path in_run(const char* name) const { return options_.run.folder / name; }
  /// What rank 0 alone writes; a full disk there stops every rank in order.
  template <typename Write>
  void agree_on_disk(Write write) {
    agree(mesh_.world(), [&] {
      if (is_rank_0()) write();
    });
  }

  /// For the watcher, and for a fault that is to strike there.
  void enter(Activity activity);
  void arm_faults(const std::vector<Fault>& faults);
  TrainerHooks hooks();

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
  /// Where all ranks met an error, what is being written may be finished.
  template <typename Work>
  auto writing_on(Work work);
  /// One rank may meet this alone: it cannot be agreed on.
  bool one_step_in_memory(Index step);
  /// -> whether the weights may be saved: those that gave no finite step may be broken themselves, and must
  /// not replace good ones on the disk.
  bool one_step(Index step);
  RankNews news();
  StepReport train(Index step);
  /// Counts what an adapter's experts got; at last throws AgreedError for a factor that nothing came back to.
  void watch_adapter(const StepReport& report);
  void stop(Index done);
  void stop_if_none_is_finite(const StepReport& report);
  void record(const StepMetrics& metrics);
  /// The collapses that this run's folder tells of are not told again.
  void go_on_watching(const std::vector<StepMetrics>& earlier);

  // What is kept and said of it (train_run_end.cpp).
  std::optional<double> validate();
  std::string sample();
  /// What it held at most, where there was a ceiling. Collective.
  void say_peak();
  void finish();
  /// Of the whole run; none where nobody recorded when it began. Rank 0.
  std::optional<TimeUse> spent() const;
  void print_result(const std::optional<double>& validation, const std::string& text);

  // What goes to the disk, which may be full for a while (train_run_save.cpp).
  TrainerState state_at(Index step);
  /// A checkpoint; where the system refuses it, the last one stays, the log says why, and training goes on.
  void save(Index done);
  /// The same while steps go on, where that is wanted and memory allows.
  void begin_save(Index done);
  /// After a step in which every rank's part of a stage was done.
  void go_on_saving();
  /// Waits for a save under way, if there is one.
  void finish_save();
  /// A part of saving, whose time the steps wait; what it throws is said, and so is its end.
  void try_saving(Index done, const std::function<void()>& step);
  bool saves_in_background();
  std::string why_no_copy();
  void prepare_save();
  void end_save(Index done);
  CheckpointRun checkpoint_run() const {
    return {options_.run.folder, options_.run.shard_bytes, inputs_.words};
  }
  void check_file_system();
  /// Of rank 0, beside the steps: a disk that is busy takes long to forget a large file.
  void prune(Index done);
  void finish_pruning();
  void say_save_failed(Index done, const std::string& reason);
  void export_weights();
  void write_trace();
  void write_line(const StepMetrics& metrics);
  /// What is lost where the system refuses it, and said. `write` runs on every rank.
  bool write_output(const char* what, const std::function<void()>& write);
  /// kOutputLost where something that was to be written at the end is not there.
  RunEnd end_as(RunEnd otherwise);

  const TrainOptions options_;
  const std::string rate_reason_;
  const RunInputs inputs_;
  const Mesh mesh_;
  const RunHost& host_;
  const Log log_;
  const std::unique_ptr<PositionBoard> own_board_;  // where the host has none
  PositionBoard& board_;
  const TrainerSettings settings_;
  std::optional<Document> recorded_settings_;  // of every checkpoint; made once, because marks read the data
  const RunBatches batches_;                   // before what is decided: its memory is counted
  const RunDecision decided_;
  const DispatcherSettings dispatcher_;
  const std::unique_ptr<TrainingState> model_;
  RunRouting routing_;
  Trainer trainer_;
  CollapseWatch collapse_watch_;
  SaveClock save_clock_;
  std::optional<FaultInjector> faults_;  // before what writes: it sees every file
  BackgroundSave background_;
  std::future<std::string> pruning_;              // what went wrong with it; rank 0
  std::optional<bool> in_background_;             // none: not decided yet
  Index saving_ = -1;                             // the step of the save under way
  double held_seconds_ = 0;                       // that saves held the steps
  double held_told_ = 0;                          // of those, what lines of the metrics say
  double start_seconds_ = 0;                      // from the process's start; until a line says so
  double held_before_ = 0;                        // by the saves before this one
  std::vector<std::vector<Index>> adapted_rows_;  // [layer][E], of the first steps of an adapter
  std::vector<std::vector<Index>> last_rows_;     // [layer][E], of the last step that was not skipped
  std::unique_ptr<RunLock> lock_;                 // of a new folder; rank 0
  std::optional<Trace> trace_;
  std::optional<MetricsWriter> metrics_;  // rank 0
  std::vector<std::string> left_;         // names of checkpoints of another course; rank 0
  Index first_step_ = 0;
  Index steps_done_ = 0;
  Index memory_bytes_ = 0;  // the most that this rank held at the end of a step
  Index skipped_in_a_row_ = 0;
  bool told_of_slices_ = false;
  Index saved_ = -1;               // the step of the last checkpoint
  std::string save_error_;         // of the last save; empty: it went well
  std::string metrics_error_;      // of the last line; rank 0
  bool output_lost_ = false;       // a report, an export, a recording or a trace
  std::uint64_t file_system_ = 0;  // that the run's folder began on; rank 0
  int signal_ = 0;                 // that asks the run to stop; 0: none
  bool stopped_ = false;
  Index tokens_seen_ = 0;  // rank 0
  double seconds_ = 0;
};

}  // namespace moeloom
