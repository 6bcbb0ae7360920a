// What a rank holds of a model in training, made at once: what does not fit is said before anything else is.
#pragma once

#include "model/decoder.hpp"
#include "model/freeze.hpp"
#include "model/parts/node_halves.hpp"
#include "train/sharded_optimizer.hpp"

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace moeloom {

struct TrainingStateSettings {
  KernelTable kernels = {};
  DispatcherSettings dispatcher = {};
  OptimizerSettings optimizer = {};
  /// As it was settled: what is kept, when sums and weights travel, and leaves of exact sums.
  Job job = {};
  std::set<std::string> frozen = {};  // names of parameters
  RoutingSettings routing = {};
  // What make_training_state() makes.
  std::shared_ptr<const NodeHalves> halves = nullptr;
  ShardedDense dense = {};
  std::shared_ptr<const DiskMemory> frozen_on_disk = nullptr;
};

/// Leaves of the exact sums of such a step; none where they follow the tree of ranks.
LeafSettings leaves_of(const BatchShape& batch);

/// Of a run with shard_dense: memory of the node where ranks can share it, which all nodes must alike.
/// Collective over the world.
ShardedDense sharded_dense(const Mesh& mesh, const std::vector<ParameterSpec>& specs, bool with_halves,
                           Index pretended_nodes);

/// Weights are zero until they are initialised or loaded.
struct TrainingState {
  /// The mesh must outlive it. Collective over nothing.
  TrainingState(const ModelConfig& config, const Mesh& mesh, const TrainingStateSettings& settings);

  ParameterStore store;
  Decoder decoder;
  ShardedOptimizer optimizer;
};

/// The parameters of these experts, as they are kept.
std::vector<ParameterSpec> kept_specs(const ModelConfig& config, ExpertRange experts,
                                      const std::set<std::string>& frozen, const Keeping& keeping);
/// Those of this rank.
std::vector<ParameterSpec> specs_here(const ModelConfig& config, const Mesh& mesh,
                                      const std::set<std::string>& frozen = {}, const Keeping& keeping = {});

/// Collective over the world; throws AgreedError with the bytes that were asked for if they do not fit on any
/// rank.
std::unique_ptr<TrainingState> make_training_state(const ModelConfig& config, const Mesh& mesh,
                                                   const TrainingStateSettings& settings);

}  // namespace moeloom
