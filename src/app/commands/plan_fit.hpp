// What a job asks of its nodes' memory at the least, and the cheapest change with which it would fit.
#pragma once

#include <optional>

#include "commands/step_plan.hpp"

namespace moeloom {

/// A job laid out another way, and the mesh of it that asks for least.
struct FittingJob {
  PlanRequest request;
  StepCase step;
  MemoryNeed memory;  // of a rank
};

/// The point that asks for least of a node; there is one at least.
const PlanPoint& smallest_point(const std::vector<PlanPoint>& points);

/// The same tokens a step, laid out so that some mesh by one of `ways` fits. Of those the fewest nodes come
/// first, which cost money; then the most ranks a node, then the fewest micro-batches, which cost time. None:
/// not even one rank a node with one sequence at a time fits, on as many nodes as there are sequences.
std::optional<FittingJob> cheapest_fit(const PlanRequest& request, const std::vector<DispatcherKind>& ways);

/// The options that change, as they are typed: "--accumulate 16".
std::string changed_options(const PlanRequest& before, const PlanRequest& after);

/// What is said of a plan of which nothing fits: its smallest point, and the change that helps.
std::string memory_advice(const PlanRequest& request, const PlanPoint& smallest,
                          const std::optional<FittingJob>& fit);

}  // namespace moeloom
