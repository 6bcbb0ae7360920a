// The training step of a sweep: the model that `train` would train, at any ep, checked against ep = 1.
#pragma once

#include "moeloom/train/trainer.hpp"

#include <deque>

#include "moeloom/measure/sample.hpp"
#include "moeloom/measure/sweep/world.hpp"
#include "run/model_memory.hpp"

namespace moeloom {

/// A model in training, as a run has it.
class StepSubject {
 public:
  /// The tokens must outlive it. Collective over the world.
  StepSubject(const EpWorld& world, const PlannedPoint& planned, const TokenSource& tokens);
  /// Collective over the world.
  StepReport train(Index step) { return trainer_.step(step); }
  StepSample step(Index step);

 private:
  Index rows_here() const;
  Index row_bytes_here() const;

  const Mesh* mesh_;
  std::unique_ptr<ModelMemory> model_;
  BatchSampler sampler_;
  Trainer trainer_;
};

/// Members of a comparison; every function is collective over the world.
class StepGroup {
 public:
  /// `common`: what all points share.
  StepGroup(const EpWorld& world, const EpPoint& common);
  /// How far the first steps of a new member are from those at ep = 1: the largest difference of a loss or a
  /// gradient norm, relative to it. The second step is one of updated weights.
  double add(const PlannedPoint& planned);
  static double tolerance(DType dtype);
  /// The step that step() measures from now on.
  void prepare(Index step) { step_ = step; }
  StepSample step(std::size_t member);

 private:
  /// Loss and gradient norm of each of the first steps.
  static std::vector<double> first_steps(StepSubject& subject);

  const EpWorld& world_;
  TokenSource tokens_;
  std::vector<double> reference_;
  std::deque<StepSubject> subjects_;
  Index step_ = 0;
};

}  // namespace moeloom
