// A training run from its first step to its report, on every rank.
#pragma once

#include "moeloom/run/training.hpp"

#include <exception>

#include "open/opened_run.hpp"
#include "record/trace.hpp"
#include "step/adapter_watch.hpp"
#include "step/outputs.hpp"
#include "step/recorder.hpp"
#include "step/run_routing.hpp"
#include "step/run_watch.hpp"
#include "step/saver.hpp"

namespace moeloom {

/// A mesh, a model, a trainer and the loop over steps; what is saved, recorded and watched has its own class.
/// Members in the order in which they need each other. All of it is collective over the world.
class TrainRun {
 public:
  /// `host`: until the run has gone.
  TrainRun(const TrainRequest& request, RunInputs inputs, Mesh mesh, const RunHost& host);
  ~TrainRun();

  /// All that comes before the first step.
  void begin();
  Index next_step() const { return next_step_; }
  /// -> whether there is another one.
  bool step();
  std::optional<double> evaluate();
  void save_now();
  /// After the last step, or a stop.
  RunEnd end();

 private:
  bool another() const { return !stopped_ && next_step_ < run_.options.run.steps; }
  StepsDone done() const { return {next_step_, recorder_.tokens_seen()}; }
  /// Where all ranks met an error, what is being written may be finished.
  template <typename Work>
  auto writing_on(Work work);
  /// -> whether the weights may be saved: those that gave no finite step may be broken themselves, and must
  /// not replace good ones on the disk.
  bool one_step();
  void stop_if_none_is_finite(const StepReport& report);
  std::optional<double> validate();
  void write_trace();
  /// A checkpoint of now, unless there is one, or the last step was skipped.
  void save_if_sound();
  void stop();
  void finish();
  RunEnd end_once();

  OpenedRun run_;
  Index next_step_;
  RunWatch watch_;  // before what writes: a fault sees every file
  const DispatcherSettings dispatcher_;
  const std::unique_ptr<TrainingState> model_;
  Outputs outputs_;
  RunRouting routing_;
  std::optional<Trace> trace_;
  Trainer trainer_;
  AdapterWatch adapter_watch_;
  Recorder recorder_;
  Saver saver_;
  Index skipped_in_a_row_ = 0;
  double reporting_seconds_ =
      0;            // after the last step, but for saving and validating; of the next one's time
  int signal_ = 0;  // that asks the run to stop; 0: none
  bool stopped_ = false;
  std::optional<RunEnd> ended_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace moeloom
