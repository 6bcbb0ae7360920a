// What a job asks of its nodes' memory at the least, and the cheapest change with which it would fit.
#pragma once

#include "plan/predict.hpp"

#include <optional>

namespace moeloom {

/// A job laid out another way, on the mesh that asks for least.
struct FittingJob {
  Job job;
  MemoryNeed memory;  // of a rank
};

/// The point that asks for least of a node; there is one at least.
const PredictedPoint& smallest_point(const std::vector<PredictedPoint>& points);

/// The same tokens a step, laid out so that some mesh by one of `ways` fits. Of those the fewest nodes come
/// first, which cost money; then weights and moments of the formats that are asked for, which change no
/// number; then what recomputes least, the most ranks a node and the fewest micro-batches, which cost time.
/// None: not even one rank a node with one sequence at a time fits, on as many nodes as there are sequences.
std::optional<FittingJob> cheapest_fit(const PlannedJob& planned,
                                       std::span<const DispatcherKind> kinds = kDispatcherKinds);

/// The same with as many ranks a node as there are, of which each may hold `rank_bytes`: on the fewest nodes,
/// and there with the least to recompute, in the fewest micro-batches.
std::optional<FittingJob> cheapest_fit_of_ranks(const PlannedJob& planned, double rank_bytes,
                                                std::span<const DispatcherKind> kinds = kDispatcherKinds);

/// The same tokens a step on hosts of which each has memory_per_node and takes at most so many ranks, filled
/// in order, with micro-batches of whole leaves of exact sums. Of the jobs that fit: the most ranks, then the
/// fewest micro-batches, not fewer than asked, then the ep nearest to the asked one. None: nothing divides,
/// or not even one rank with one sequence at a time fits.
std::optional<FittingJob> fit_on_hosts(const PlannedJob& planned, Index ep, std::span<const Index> slots,
                                       std::span<const DispatcherKind> kinds = kDispatcherKinds);

}  // namespace moeloom
