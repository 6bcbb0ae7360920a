// A training run whose model, data and mesh are known: what was asked, what it starts from, and what was
// decided.
#pragma once

#include "train/trainer.hpp"

#include "open/run_decision.hpp"
#include "open/run_setup.hpp"
#include "record/log.hpp"

namespace moeloom {

/// Whether checkpoints are asked for besides the last.
inline bool saves_before_the_end(const RunOptions& run) {
  return run.save_minutes > 0 || (run.save_every > 0 && run.save_every < run.steps);
}

/// Members in the order in which they need each other.
struct OpenedRun {
  /// Decides what runs. `host`: until the run has gone. Collective; throws AgreedError where memory is less
  /// than the run needs.
  OpenedRun(const TrainRequest& request, RunInputs opened, Mesh over, const RunHost& told);
  OpenedRun(const OpenedRun&) = delete;
  OpenedRun& operator=(const OpenedRun&) = delete;

  const Communicator& world() const { return mesh.world(); }
  bool is_rank_0() const { return world().rank() == 0; }
  std::filesystem::path file(const char* name) const { return options.run.folder / name; }
  Index first_step() const { return inputs.resumes ? inputs.recorded->step : 0; }
  /// What the checkpoint after so many steps records. tokens_seen: by them; rank 0's counts.
  TrainerState state_at(Index step, Index tokens_seen) const;
  /// What all ranks know.
  void warn_once(const Event& event) const {
    if (is_rank_0()) log.warn(event);
  }

  const TrainOptions options;
  const std::string rate_reason;
  RunInputs inputs;
  const Mesh mesh;
  const RunHost& host;
  const Log log;
  const TrainerSettings settings;
  const RunBatches batches;  // before what is decided: its memory is counted
  const RunDecision decision;
  const Document recorded_settings;  // of every checkpoint
};

}  // namespace moeloom
