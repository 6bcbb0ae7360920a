// A tiny run that records or replays.
#pragma once

#include "moeloom/train/routing/routing_recorder.hpp"
#include "moeloom/train/routing/routing_replay.hpp"

#include "../training_run.hpp"
#include "support/shared_folder.hpp"

namespace moeloom::testing {

/// Trains the steps [from, to) and records them. Collective over the run's part of the world.
struct RecordedRun {
  std::optional<RoutingRecorder> recorder;
  TrainingRun run;
  std::vector<double> losses;

  RecordedRun(const std::filesystem::path& path, const MeshShape& shape, TrainingRunSettings settings)
      : run(shape, with_hooks(settings)) {
    recorder.emplace(path, routing_heading_of(run.config, run.batch.tokens(), run.batch.length, 17),
                     run.mesh.world());
  }
  void record(Index from, Index to) {
    for (Index step = from; step < to; ++step) {
      const StepReport report = run.trainer.step(step);
      recorder->end_step(step, report.skipped);
      losses.push_back(report.loss);
      losses.push_back(report.grad_norm);
    }
    recorder->publish();
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
