// Where a rank of a run is, for whoever watches it, and the faults that are to strike it there.
#pragma once

#include "train/training_state.hpp"

#include <optional>

#include "open/opened_run.hpp"
#include "watch/fault_injector.hpp"

namespace moeloom {

/// It stays where it is: the model's clock knows it.
class RunWatch {
 public:
  /// next_step: the run's own, as it goes on.
  RunWatch(const OpenedRun& run, const Index& next_step);
  RunWatch(const RunWatch&) = delete;
  RunWatch& operator=(const RunWatch&) = delete;

  /// From now on the model shows where it is. It may go before the watch. faults: of all ranks.
  void look_at(TrainingState& model, std::vector<Fault> faults);
  void enter(Activity activity);
  /// The gradients of a micro-batch are there.
  void meet_gradients(Index step) {
    if (faults_) faults_->meet_gradients(step);
  }

 private:
  const OpenedRun& run_;
  const Index& next_step_;
  PositionBoard own_board_;  // where the host has none
  PositionBoard& board_;
  std::optional<FaultInjector> faults_;
};

}  // namespace moeloom
