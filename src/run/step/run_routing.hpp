// --record-routing and --replay-routing of a training run.
#pragma once

#include "measure/workload.hpp"
#include "moeloom/run/options.hpp"
#include "train/routing/routing_recorder.hpp"
#include "train/routing/routing_replay.hpp"

#include "record/log.hpp"
#include "step/outputs.hpp"

namespace moeloom {

/// The steps of `run` whose routing is recorded: those asked for, or by themselves its last ten. Empty where
/// the run has none of them.
StepRange recorded_range(const std::optional<StepRange>& asked, StepRange run);

/// What a run is, to record it or to force routing on it.
struct RoutedRun {
  const ModelConfig& config;
  BatchShape batch;
  std::uint64_t seed = 0;
  StepRange steps;       // that it takes
  bool resumes = false;  // what was recorded of the steps before is kept
};

/// One of each run; its functions are called on all ranks alike. It stays where it is: hooks know it.
class RunRouting {
 public:
  RunRouting() = default;
  RunRouting(const RunRouting&) = delete;
  RunRouting& operator=(const RunRouting&) = delete;

  TrainerHooks hooks();
  /// Opens what is asked for -> what a log should say of it. Collective; throws AgreedError for a file or
  /// steps that do not fit the run.
  std::vector<Event> plan(const RoutingOptions& options, const RoutedRun& run, const BatchSource& batches,
                          const Communicator& world);
  /// Every batch of `run` gets a made-up routing, each sparse layer another.
  void force(Workload workload, const RoutedRun& run);
  /// Makes the file that is recorded into, when the run has its folder. Collective; throws AgreedError.
  void start();
  /// After each step. Where the disk refuses it, no more is recorded, and what is there stays. Collective.
  void end_step(const StepReport& report, Outputs& outputs, const Log& log);

 private:
  /// The same on every rank.
  bool records(Index step) const { return recorder_ && range_.from <= step && step < range_.to; }

  std::optional<RoutingRecorder> recorder_;
  std::optional<RoutingReplay> replay_;
  std::function<void(MicroBatchPlace, Batch&)> force_;
  StepRange range_;        // recorded
  Index kept_before_ = 0;  // of a recording that is there; 0: nothing
};

}  // namespace moeloom
