// What `moeloom plan` says of its predictions in the words of the command line.
#pragma once

#include "plan/fit.hpp"

#include "cli/options.hpp"

namespace moeloom {

/// Where the prediction goes beyond what was measured, a sentence each.
std::vector<std::string> extrapolations(const PlannedJob& planned, const MachineRates& machine,
                                        const PlanOptions& options);

/// What measures the rates that the plan reads, its threads settled.
CalibrateOptions calibration_of(const PlannedJob& planned, const PlanOptions& options);
/// The line that does so with as many ranks a node on so many nodes: mpirun ... moeloom calibrate ...
std::string calibrate_line(const CalibrateOptions& options, Index node_ranks, Index nodes);

/// Its share of the node's memory, as `train --memory` takes it; 0: no memory was said.
Index memory_of_a_rank(const PlanOptions& options);

/// The line that runs a point: mpirun ... moeloom train ... `unasked`: the experts' path that train would
/// take there.
std::string run_line(const PlanOptions& options, const PredictedPoint& point, const GmmDecision& unasked);

/// What replicas would save of the job's uneven rows; of even ones, from which load of an expert on they pay.
std::string gain_text(const ModelConfig& config, const Job& job, const RebalanceRates& rates);

/// What is said of a plan of which nothing fits: its smallest point, and the change that helps.
std::string memory_advice(const PlannedJob& planned, const PredictedPoint& smallest,
                          const std::optional<FittingJob>& fit);

}  // namespace moeloom
