// The MoE layer of a sweep: forward and backward of given routings, at any ep, checked against ep = 1.
//
// The router is given its choices through its input: its weight is the identity on the first E values of a
// token, which are the logits that make it choose so. So the layer that is measured is the one that trains.
#pragma once

#include "moeloom/moe/moe_layer.hpp"

#include <deque>

#include "moeloom/measure/sample.hpp"
#include "moeloom/measure/sweep/world.hpp"

namespace moeloom {

/// The tokens of a rank in one step. The same for every ep.
class LayerInputs {
 public:
  LayerInputs(const ModelConfig& config, const EpPoint& point, std::uint64_t seed, Index rank);
  /// The routing of a step; without it there is none.
  void prepare(Index step);
  const Matrix& hidden() const { return hidden_; }
  const Matrix& d_output() const { return d_output_; }

 private:
  Workload workload_;
  WorkloadShape shape_;
  std::uint64_t seed_;
  TokenRange range_;
  Matrix hidden_;    // [T, D]
  Matrix d_output_;  // [T, D]
};

/// A layer with weights that do not depend on the mesh, and everything that its steps need.
class LayerSubject {
 public:
  LayerSubject(const ModelConfig& config, const PlannedPoint& planned, std::uint64_t seed);
  /// One step of all ranks with new weights, so that packing them is paid. Collective over the world.
  StepSample step(const LayerInputs& inputs);

  const Matrix& output() const { return output_; }
  const Matrix& d_hidden() const { return d_hidden_; }
  ConstMatrixView d_router() const { return d_router_; }
  ConstMatrixView d_gate_up() const { return d_gate_up_; }
  ConstMatrixView d_down() const { return d_down_; }
  /// This rank's experts.
  ExpertRange held() const { return held_; }
  const Mesh& mesh() const { return *mesh_; }

 private:
  const Mesh* mesh_;
  KernelTable kernels_;
  ExpertRange held_;
  Matrix router_, d_router_;    // [E, D]
  Matrix gate_up_, d_gate_up_;  // [e*2F, D]
  Matrix down_, d_down_;        // [e*D, F]
  MoeLayer layer_;
  Dispatcher dispatcher_;
  Matrix output_, d_hidden_;  // [T, D]
  MoeWorkspace workspace_;
  PhaseClock clock_;
  std::uint64_t version_ = 0;
};

/// Members of a comparison; every function is collective over the world.
class LayerGroup {
 public:
  /// `common`: what all points share.
  LayerGroup(const EpWorld& world, const EpPoint& common);
  /// How far a new member is from ep = 1: the largest error of a row of the output or of any gradient, over
  /// the root mean square of such rows.
  double add(const PlannedPoint& planned);
  static double tolerance(DType dtype);
  /// The step that step() measures from now on.
  void prepare(Index step) { inputs_.prepare(step); }
  StepSample step(std::size_t member) { return subjects_[member].step(inputs_); }

 private:
  struct Results {
    Matrix output, d_hidden;             // [T, D]
    Matrix d_router, d_gate_up, d_down;  // of all experts, summed over all ranks
  };
  Results reference_results(const EpPoint& common);
  double error_of(const LayerSubject& subject) const;

  const EpWorld& world_;
  LayerInputs inputs_;
  Results reference_;
  std::deque<LayerSubject> subjects_;
};

}  // namespace moeloom
