// Parameters that are trained in name alone: nothing ever came back to them.
#pragma once

#include "train/sharded_optimizer.hpp"

#include <string>
#include <vector>

namespace moeloom {

/// A parameter, or one expert's part of it, whose gradient was zero in every step so far.
struct NoGradient {
  std::string parameter;
  Index expert = -1;     // by global id; -1: a weight of all ranks
  bool starved = false;  // in fewer than two steps a row of the expert was there to learn from
};

/// By second moments that are still zero. steps_with_rows: those in which an expert got rows, by
/// [layer][global expert]. An adapter's A learns from the second on, when its B is not zero any more.
/// Collective over the world; the same list on every rank, by parameter and expert.
std::vector<NoGradient> without_gradient(const ParameterStore& store, ShardedOptimizer& optimizer,
                                         const Mesh& mesh,
                                         const std::vector<std::vector<Index>>& steps_with_rows);

}  // namespace moeloom
