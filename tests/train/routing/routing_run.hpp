// A tiny run that records or replays.
#pragma once

#include "train/routing/routing_recorder.hpp"
#include "train/routing/routing_replay.hpp"

#include "../training_run.hpp"
#include "support/shared_folder.hpp"

namespace moeloom::testing {

inline constexpr Index kMostSteps = 6;

/// Trains the steps [from, to) and records them. Collective over the run's part of the world.
struct RecordedRun {
  std::optional<RoutingRecorder> recorder;
  TrainingRun run;
  std::vector<double> losses;

  RecordedRun(const std::filesystem::path& path, const MeshShape& shape, TrainingRunSettings settings)
      : run(shape, with_hooks(settings)) {
    recorder.emplace(path, routing_heading_of(run.config, run.batch.tokens(), run.batch.length, 17), 0,
                     kMostSteps, run.mesh.world());
  }
  /// Goes on with what a file has before `from`, as one that holds the steps before it.
  void record(Index from, Index to) {
    recorder->start(from);
    for (Index step = from; step < to; ++step) {
      const StepReport report = run.trainer.step(step);
      recorder->end_step(step, report.skipped);
      losses.push_back(report.loss);
      losses.push_back(report.grad_norm);
    }
  }

 private:
  TrainingRunSettings with_hooks(TrainingRunSettings settings) {
    settings.hooks.after = [this](MicroBatchPlace place, const Batch& batch, const Decoder& decoder) {
      recorder->note(place, batch, decoder);
    };
    return settings;
  }
};

}  // namespace moeloom::testing
