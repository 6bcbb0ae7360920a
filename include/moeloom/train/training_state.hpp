// What a rank holds of a model in training, made at once: what does not fit is said before anything else is.
#pragma once

#include "moeloom/model/decoder.hpp"
#include "moeloom/model/freeze.hpp"
#include "moeloom/model/node_halves.hpp"
#include "moeloom/train/sharded_optimizer.hpp"

#include <filesystem>
#include <memory>
#include <set>
#include <string>

namespace moeloom {

struct TrainingStateSettings {
  KernelTable kernels = {};
  DispatcherSettings dispatcher = {};
  OptimizerSettings optimizer = {};
  std::set<std::string> frozen = {};  // names of parameters
  RoutingSettings routing = {};
  LeafSettings leaves = {};  // of exact sums
  Recompute recompute = Recompute::kNone;
  /// Dense gradients are held by the ranks that own them, and dense weights once a node. The optimizer's
  /// reduction is then kByLayer.
  bool shard_dense = false;
  Index pretended_nodes = 0;  // of shard_dense, as in find_nodes()
  /// A folder on a disk of the node, where frozen experts in bf16 or F16 lie; empty: in memory.
  std::filesystem::path offload = {};
  // What make_training_state() makes.
  std::shared_ptr<const NodeHalves> halves = nullptr;
  ShardedDense dense = {};
  std::shared_ptr<const DiskMemory> frozen_on_disk = nullptr;
};

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

/// The parameters of this rank.
std::vector<ParameterSpec> specs_here(const ModelConfig& config, const Mesh& mesh,
                                      const std::set<std::string>& frozen = {},
                                      Storage masters = Storage::kFp32, Storage gradients = Storage::kFp32);

/// Collective over the world; throws AgreedError with the bytes that were asked for if they do not fit on any
/// rank.
std::unique_ptr<TrainingState> make_training_state(const ModelConfig& config, const Mesh& mesh,
                                                   const TrainingStateSettings& settings);

}  // namespace moeloom
