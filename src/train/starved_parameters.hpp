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
  bool starved = false;  // the expert got no row either, so that there was nothing to learn from
};

/// By second moments that are still zero. rows_so_far: rows that each expert got in those steps, by
/// [layer][global expert]. After at least two updates of an adapter, whose A learns from the second on.
/// Collective over the world; the same list on every rank, by parameter and expert.
std::vector<NoGradient> without_gradient(const ParameterStore& store, ShardedOptimizer& optimizer,
                                         const Mesh& mesh,
                                         const std::vector<std::vector<Index>>& rows_so_far);

}  // namespace moeloom
