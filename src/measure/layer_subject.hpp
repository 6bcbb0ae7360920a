// One MoE layer with everything that its steps need: forward and backward of given routings, at any ep, and
// the check of its results against ep = 1. How a run decides is not its concern: kernels and dispatcher are
// given.
#pragma once

#include "measure/sample.hpp"
#include "measure/workload.hpp"
#include "moe/moe_layer.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/model/hf/config.hpp"

namespace moeloom {

struct LayerSizes {
  Index hidden = 0;
  Index inter = 0;
  Index experts = 0;
  Index top_k = 0;
  bool norm_topk_prob = true;
};
LayerSizes layer_sizes(const ModelConfig& config);

/// The tokens of a rank in one step. The same for every ep.
class LayerInputs {
 public:
  /// tokens: over all ranks.
  LayerInputs(const LayerSizes& sizes, const Workload& workload, Index tokens, const Communicator& world,
              std::uint64_t seed);
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

/// A layer with weights that do not depend on the mesh. Where the dispatcher plans replicas, experts
/// lie in the node's memory, if it has one.
class LayerSubject {
 public:
  /// The mesh must outlive it.
  LayerSubject(const LayerSizes& sizes, const Mesh& mesh, const KernelTable& kernels,
               const DispatcherSettings& dispatcher, std::uint64_t seed);
  /// One step of all ranks with new weights, so that packing them is paid. Collective over the world.
  StepSample step(const LayerInputs& inputs);

  /// Of the last step, on this rank.
  const PhaseTimes& forward_seconds() const { return forward_seconds_; }
  const PhaseTimes& backward_seconds() const { return backward_seconds_; }
  const Matrix& output() const { return output_; }
  const Matrix& d_hidden() const { return d_hidden_; }
  ConstMatrixView d_router() const { return d_router_; }
  ConstMatrixView d_gate_up() const { return d_gate_up_; }
  ConstMatrixView d_down() const { return d_down_; }
  /// This rank's experts.
  ExpertRange held() const { return held_; }
  const Mesh& mesh() const { return *mesh_; }
  /// Since it was made, on this rank; all zeros without rebalancing.
  const RebalanceCounts& rebalance_counts() const { return layer_.experts().rebalance_counts(); }
  /// What the experts' products multiply.
  DType dtype() const { return kernels_.grouped_matmul.element; }

 private:
  const Mesh* mesh_;
  KernelTable kernels_;
  std::shared_ptr<NodeMemory> weight_memory_;  // null: weights are the rank's own
  ExpertRange held_;
  Matrix router_, d_router_;       // [E, D]
  RowBuffer gate_up_, d_gate_up_;  // [e*2F, D]
  RowBuffer down_, d_down_;        // [e*D, F]
  MoeLayer layer_;
  Dispatcher dispatcher_;
  ExpertRunner experts_;
  Matrix output_, d_hidden_;  // [T, D]
  MoeWorkspace workspace_;
  PhaseClock clock_;
  PhaseTimes forward_seconds_{}, backward_seconds_{};
  std::uint64_t version_ = 0;
};

/// Whether a layer computes what a loop over all experts on each rank does, in fp32 with reference kernels.
class LayerCheck {
 public:
  /// Runs that loop, in memory for all experts. without_ep: the same ranks at ep = 1. Collective over the
  /// world; leaves inputs prepared for the checked step.
  LayerCheck(const LayerSizes& sizes, const Mesh& without_ep, LayerInputs& inputs, std::uint64_t seed);
  /// The largest error of a row of the output or of any gradient, over the root mean square of such rows, on
  /// any rank. Runs one step. Collective over the world.
  double error_of(LayerSubject& subject, LayerInputs& inputs) const;
  static double tolerance(DType dtype);

 private:
  Index experts_;
  Matrix output_, d_hidden_;              // [T, D]
  Matrix d_router_, d_gate_up_, d_down_;  // of all experts, summed over all ranks
};

}  // namespace moeloom
