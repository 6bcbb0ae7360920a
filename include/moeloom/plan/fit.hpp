// What a job asks of its nodes' memory at the least, and the cheapest change with which it would fit.
#pragma once

#include "moeloom/plan/predict.hpp"

#include <optional>

namespace moeloom {

/// A job laid out another way, and the mesh of it that asks for least.
struct FittingJob {
  Job job;
  StepCase step;
  MemoryNeed memory;  // of a rank
};

/// The point that asks for least of a node; there is one at least.
const PredictedPoint& smallest_point(const std::vector<PredictedPoint>& points);

/// The same tokens a step, laid out so that some mesh by one of `ways` fits. Of those the fewest nodes come
/// first, which cost money; then the most ranks a node, then the fewest micro-batches, which cost time. None:
/// not even one rank a node with one sequence at a time fits, on as many nodes as there are sequences.
std::optional<FittingJob> cheapest_fit(const Job& job,
                                       std::span<const DispatcherKind> kinds = kDispatcherKinds);

}  // namespace moeloom
