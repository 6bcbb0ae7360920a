// A job at every mesh, by every dispatcher and both paths of the experts: the step, the memory and the bytes
// that are predicted of each, as decide() would run it.
#pragma once

#include "plan/decide/decide.hpp"

#include <functional>
#include <set>
#include <span>

namespace moeloom {

/// A training job whose mesh and exchange are left open: of its mesh the number of ranks counts.
struct PlannedJob {
  ModelConfig config;
  Job job = {};
  double memory_per_node = 0;
  Index gmm_budget_bytes = 0;
  DType dtype = DType::kF32;
  std::set<std::string> frozen = {};  // names of parameters
  bool overlap = true;                // what may travel under products does where decide() has it so

  Index ranks() const { return job.layout.mesh.world(); }
};

/// One way to run it.
struct PredictedPoint {
  Job job;
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
std::vector<PredictedPoint> predict_points(const PlannedJob& planned, const MachineRates& machine,
                                           const PredictExperts& predict,
                                           std::span<const DispatcherKind> kinds = kDispatcherKinds);

/// Sizes of ep that the job can have.
std::vector<Index> ep_sizes(const PlannedJob& planned);
/// The job at one of them; the way and its chunks are left open.
Job job_at(const PlannedJob& planned, Index ep);
/// Those of `ways` that can run there: of ep = 1, where there is nothing to choose, alltoall.
std::vector<DispatcherKind> kinds_at(const Job& job, std::span<const DispatcherKind> kinds);
/// The parameters of the rank that holds most, as they are stored.
std::vector<ParameterSpec> parameters_at(const PlannedJob& planned, Index ep);

/// What train would ask for: everything is left to decide(), but that nothing travels where nothing may.
RunRequest request_of(const PlannedJob& planned);
/// What a decision weighs of the job at a mesh; rates and prediction are left to the caller.
RunFacts facts_at(const PlannedJob& planned, const Job& job);

/// What a rank of such a job needs with even rows and without packed faces.
MemoryNeed unpacked_memory(const PlannedJob& planned, const std::vector<ParameterSpec>& specs,
                           const Job& job);
/// All ranks of a node together.
double node_memory_bytes(const Job& job, const MemoryNeed& memory);

/// What of the step takes longest: "experts 46 %".
std::string bottleneck(const PhaseSeconds& seconds);
/// "alltoall", "alltoall in 4" where rows travel in so many chunks while experts compute, "-" for ep = 1.
std::string dispatcher_text(const PredictedPoint& point);
/// "loop", "gmm" or "gmm, packed".
std::string gmm_text(const PredictedPoint& point);

/// Ranks of a node that have processors of their own at the same time: those whose rates a plan asks for.
Index busy_node_ranks(const PlannedJob& planned);

}  // namespace moeloom
