// A run's checkpoints: when they are due, written while steps go on where that is wanted and memory allows,
// and what becomes of them where the disk refuses.
#pragma once

#include "train/checkpoint/background_save.hpp"
#include "train/trainer.hpp"
#include "train/training_state.hpp"

#include "open/opened_run.hpp"
#include "step/pruning.hpp"
#include "step/run_watch.hpp"
#include "step/save_clock.hpp"
#include "summary/run_report.hpp"

namespace moeloom {

/// So many steps of a run.
struct StepsDone {
  Index steps = 0;
  Index tokens_seen = 0;  // in them; rank 0's counts
};

/// A save that the system refuses is said and leaves the last checkpoint; training goes on. All but open(),
/// due() and what only tells are collective over the world.
class Saver {
 public:
  /// All until it has gone. trainer: of this model, whose weights may still travel.
  Saver(const OpenedRun& run, TrainingState& model, Trainer& trainer, RunWatch& watch);

  /// The run's folder is there, and steps begin. Throws IoError.
  void open();
  /// By the clock of rank 0.
  bool due() const { return run_.is_rank_0() && clock_.due(SaveClock::Clock::now()); }
  /// Whether this rank's part of a stage of a save under way is done.
  bool part_done() const { return background_.busy() && background_.part_done(); }

  /// Goes on with the save under way, and begins the one that is due: by the clock, or by the count of steps.
  /// sound: the step was not skipped, which may have been for broken weights.
  void after_step(const StepsDone& done, const WorldStep& all, bool sound);
  void save(const StepsDone& done);
  /// Waits for a save under way, if there is one.
  void finish();
  /// Waits for all that goes on beside the steps, and says how long saves held them. seconds: of the steps.
  void end(double seconds);

  /// Whether the checkpoint after so many steps is on the disk.
  bool has(Index steps) const { return saved_ == steps; }
  /// Of the last save; empty: it went well.
  const std::string& error() const { return error_; }
  /// "checkpoint-50", or "none": the newest that is whole.
  std::string newest() const;
  /// That saves held the steps, and no line of the metrics says yet; those of take_held() are said.
  double held_untold() const { return held_seconds_ - held_told_; }
  double take_held() { return held_seconds_ - std::exchange(held_told_, held_seconds_); }

 private:
  /// While steps go on, if it can.
  void begin(const StepsDone& done);
  /// A part of saving, whose time the steps wait; what it throws is said, and so is its end.
  void attempt(Index steps, const std::function<void()>& part);
  bool in_background();
  std::string why_no_copy() const;
  void prepare();
  void conclude(Index steps);
  void finish_pruning();
  void check_file_system() const;
  CheckpointRun place() const {
    return {run_.options.run.folder, run_.options.run.shard_bytes, run_.inputs.words};
  }

  const OpenedRun& run_;
  TrainingState& model_;
  Trainer& trainer_;
  RunWatch& watch_;
  SaveClock clock_;
  BackgroundSave background_;
  std::optional<bool> in_background_;  // none: not decided yet
  Pruning pruning_;                    // rank 0
  std::uint64_t file_system_ = 0;      // that the run's folder began on; rank 0
  Index under_way_ = -1;               // the steps of the save under way
  Index saved_ = -1;                   // those of the last checkpoint
  std::string error_;
  double held_seconds_ = 0;  // that saves held the steps
  double held_told_ = 0;     // of those, what lines of the metrics say
  double held_before_ = 0;   // by the saves before this one
};

}  // namespace moeloom
