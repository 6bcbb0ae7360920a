// Every mesh, dispatcher and GMM choice of a job, with the step, the memory and the bytes that are predicted.
#pragma once

#include "moeloom/kernels/gmm_policy.hpp"
#include "moeloom/plan/cost/step_cost.hpp"
#include "moeloom/plan/memory_need.hpp"

#include <functional>

#include "cli/options.hpp"

namespace moeloom {

/// A job, its mesh left open.
struct PlanRequest {
  ModelConfig config;
  Index ranks = 1;
  Index ranks_per_node = 1;
  Index processors_per_node = 1;
  double memory_per_node = 0;
  Index threads = 1;
  Index tokens = 0;  // of a rank and step
  Index sequence_length = 0;
  Index micro_batches = 1;
  Index gmm_budget_bytes = 0;
  DType dtype = DType::kF32;
  std::vector<std::vector<double>> expert_rows = {};  // StepCase's
};

/// One row of the plan.
struct PlanPoint {
  StepCase step;
  bool grouped = false;  // the experts as grouped matmul
  bool packs = false;    // reading packed faces
  bool sparse = false;   // the model has experts
  PhaseSeconds seconds{};
  MemoryNeed memory = {};
  double message_bytes = 0;  // that a rank sends in a step
  bool fits = true;          // into the node's memory
  std::string bottleneck = {};

  double step_seconds() const { return total(seconds); }
  double tokens_per_second() const;
};

/// Seconds of one layer's experts for one micro-batch on such a mesh, of every path.
using PredictExperts = std::function<GmmPrediction(const GmmFacts& facts, const MeshShape& mesh)>;

/// All that can run, those that fit first, then the fastest first. `ways`: dispatchers to choose from.
std::vector<PlanPoint> plan_points(const PlanRequest& request, const MachineRates& machine,
                                   const std::vector<DispatcherKind>& ways, const PredictExperts& predict);

/// The ways that this program's --dispatcher names.
std::vector<DispatcherKind> known_ways();

/// Sizes of ep that the job can have.
std::vector<Index> ep_sizes(const PlanRequest& request);

/// The job at one of them by each of `ways` that can run there, rows in the most chunks that they might
/// travel in.
std::vector<StepCase> steps_at(const PlanRequest& request, Index ep, const std::vector<DispatcherKind>& ways);

/// What a rank holds in such a step whose parameters these are. packs: experts read packed faces.
MemoryNeed memory_of(const PlanRequest& request, const StepCase& step,
                     const std::vector<ParameterSpec>& specs, bool packs);
std::vector<ParameterSpec> specs_at(const PlanRequest& request, Index ep);

/// All ranks of a node together.
double node_bytes(const StepCase& step, const MemoryNeed& memory);

/// What of the step takes longest: "experts 46 %".
std::string bottleneck(const PhaseSeconds& seconds);

/// "alltoall", "alltoall in 4" where rows travel in so many chunks while experts compute, "-" for ep = 1.
std::string dispatcher_text(const PlanPoint& point);

/// "loop", "gmm" or "gmm, packed".
std::string gmm_text(const PlanPoint& point);

/// Ranks of a node that have processors of their own at the same time: those whose rates a plan asks for.
Index busy_node_ranks(const PlanRequest& request);

/// Where the prediction goes beyond what was measured, a sentence each.
std::vector<std::string> extrapolations(const PlanRequest& request, const MachineRates& machine,
                                        const PlanOptions& options);

/// What measures the rates that the plan reads, its threads settled.
CalibrateOptions calibration_of(const PlanRequest& request, const PlanOptions& options);
/// The line that does so with as many ranks a node on so many nodes: mpirun ... moeloom calibrate ...
std::string calibrate_line(const CalibrateOptions& options, Index node_ranks, Index nodes);

/// The line that runs a point: mpirun ... moeloom train ...
std::string run_line(const PlanOptions& options, const PlanPoint& point);

}  // namespace moeloom
