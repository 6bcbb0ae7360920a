// A job at every mesh, by every dispatcher and both paths of the experts: the step, the memory and the bytes
// that are predicted of each, as decide() would run it.
#pragma once

#include "moeloom/plan/decide/decide.hpp"

#include <functional>
#include <set>
#include <span>

namespace moeloom {

/// A training job, its mesh left open.
struct Job {
  ModelConfig config;
  Index ranks = 1;
  Index ranks_per_node = 1;
  Index processors_per_node = 1;
  double memory_per_node = 0;
  Index threads = 1;
  bool tcp = false;  // StepCase's
  Index tokens = 0;  // of a rank and step
  Index sequence_length = 0;
  Index micro_batches = 1;
  Index gmm_budget_bytes = 0;
  DType dtype = DType::kF32;
  std::vector<std::vector<double>> expert_rows = {};  // StepCase's
  std::set<std::string> frozen = {};                  // names of parameters
  Recompute recompute = Recompute::kNone;
  MomentFormat moments = MomentFormat::kFp32;
  Storage masters = Storage::kFp32;
  Storage gradients = Storage::kFp32;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  bool shard_dense = false;
  bool offload = false;
  bool overlap = true;  // what may travel under products does where decide() has it so
  Index exact = 0;      // sequences of a leaf of exact sums: a rank's micro-batch is a multiple of them
};

/// One way to run it.
struct PredictedPoint {
  StepCase step;
  bool grouped = false;  // the experts as grouped matmul
  bool packs = false;    // reading packed faces
  bool sparse = false;   // the model has experts
  PhaseSeconds seconds{};
  MemoryNeed memory = {};
  double message_bytes = 0;  // that a rank hands to MPI in a step
  bool fits = true;          // into the node's memory
  std::string bottleneck = {};

  double step_seconds() const { return total(seconds); }
  double tokens_per_second() const;
};

/// Seconds of one layer's experts for one micro-batch on such a mesh, of every path.
using PredictExperts = std::function<GmmPrediction(const GmmFacts& facts, const MeshShape& mesh)>;

/// All that can run, those that fit first, then the fastest first. `ways`: dispatchers to choose from.
std::vector<PredictedPoint> predict_points(const Job& job, const MachineRates& machine,
                                           const PredictExperts& predict,
                                           std::span<const DispatcherKind> kinds = kDispatcherKinds);

/// Sizes of ep that the job can have.
std::vector<Index> ep_sizes(const Job& job);
/// The job at one of them; the way and its chunks are left open.
StepCase step_at(const Job& job, Index ep);
/// Those of `ways` that can run there: of ep = 1, where there is nothing to choose, alltoall.
std::vector<DispatcherKind> kinds_at(const StepCase& step, std::span<const DispatcherKind> kinds);
/// The parameters of the rank that holds most, as they are stored.
std::vector<ParameterSpec> parameters_at(const Job& job, Index ep);

/// What a decision weighs of the job at a mesh; rates and prediction are left to the caller.
RunFacts facts_at(const Job& job, const StepCase& step);

/// All ranks of a node together.
double node_memory_bytes(const StepCase& step, const MemoryNeed& memory);

/// What of the step takes longest: "experts 46 %".
std::string bottleneck(const PhaseSeconds& seconds);
/// "alltoall", "alltoall in 4" where rows travel in so many chunks while experts compute, "-" for ep = 1.
std::string dispatcher_text(const PredictedPoint& point);
/// "loop", "gmm" or "gmm, packed".
std::string gmm_text(const PredictedPoint& point);

/// Ranks of a node that have processors of their own at the same time: those whose rates a plan asks for.
Index busy_node_ranks(const Job& job);

}  // namespace moeloom
