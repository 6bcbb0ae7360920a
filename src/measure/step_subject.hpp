// A model in training, as a run has it, on tokens that nothing can learn; and the check of its first steps
// against ep = 1. How a run decides is not its concern: kernels and dispatcher are given.
#pragma once

#include "measure/sample.hpp"
#include "measure/workload.hpp"
#include "moeloom/model/hf/config.hpp"
#include "train/trainer.hpp"
#include "train/training_state.hpp"

namespace moeloom {

/// Bytes that nothing can learn, in memory. Throws IoError where there is none.
TokenSource random_text(std::uint64_t seed, Index bytes);

/// What every point of a comparison trains.
struct TrainingCase {
  ModelConfig model;
  Index sequences = 0;  // a step, over all ranks
  Index sequence_length = 0;
  std::uint64_t seed = 0;
  std::optional<Workload> routing = {};  // of tokens by their id, or recorded, by their place; none: as an
                                         // untrained router has it
};

class StepSubject {
 public:
  /// All of it must outlive it but kernels and settings. Collective over the world; throws AgreedError with
  /// the bytes that were asked for if they do not fit on any rank.
  StepSubject(const TrainingCase& of, const Mesh& mesh, const TokenSource& tokens, const KernelTable& kernels,
              const DispatcherSettings& dispatcher = {}, const Exchange& travel = {});
  /// The next one. Collective over the world.
  StepReport train() { return trainer_.step(next_++); }
  /// Until none of its weights travel: before another subject of these ranks trains. Collective over the
  /// world.
  void settle() { trainer_.settle(); }
  /// The same after a barrier, as a sample of this rank. Where weights are gathered by layer, they travel
  /// when it begins, as in a run: a step before it, which is no sample, leaves them so. None travel when it
  /// ends.
  StepSample step();

  /// Where this rank's position is shown, as a run does for its watcher. The mesh's calls are shown if its
  /// world reports there.
  void show_on(PositionBoard& board) { state_->decoder.clock().show_on(&board); }

  const Mesh& mesh() const { return *mesh_; }

 private:
  Index rows_here() const;

  const Mesh* mesh_;
  std::unique_ptr<TrainingState> state_;
  BatchShape batch_;
  BatchSampler sampler_;
  Trainer trainer_;
  Index next_ = 0;
};

struct CheckedSteps {
  double error = 0;  // the largest difference of a loss or a gradient norm, relative to it
  double loss = 0;   // of the last step
};

/// Whether a model's first steps are those of a loop over all experts on each rank, in fp32 with reference
/// kernels.
class StepCheck {
 public:
  static constexpr Index kSteps = 2;  // that the subject has trained after its check
  /// Trains that loop. without_ep: the same ranks at ep = 1. Collective over the world.
  StepCheck(const TrainingCase& of, const Mesh& without_ep, const TokenSource& tokens);
  /// Of the subject's next steps, which must be its first; the last is one of updated weights. It is settled
  /// behind them. Collective over the world.
  CheckedSteps check(StepSubject& subject) const;
  static double tolerance(DType dtype);

 private:
  std::vector<double> reference_;  // loss and gradient norm of each step
};

}  // namespace moeloom
