// What a rank holds of a model in training, made at once: what does not fit is said before anything else is.
#pragma once

#include "moeloom/model/decoder.hpp"
#include "moeloom/model/freeze.hpp"
#include "moeloom/train/sharded_optimizer.hpp"

namespace moeloom {

/// The config and the mesh must outlive it. frozen: names of parameters.
struct ModelMemory {
  ModelMemory(const ModelConfig& config, const Mesh& mesh, const KernelTable& kernels,
              const DispatcherSettings& dispatcher, const OptimizerSettings& settings,
              const std::set<std::string>& frozen);

  ParameterStore store;
  Decoder decoder;
  ShardedOptimizer optimizer;
};

/// Collective over the world; throws AgreedError with the bytes that were asked for if they do not fit on any
/// rank.
std::unique_ptr<ModelMemory> make_model_memory(const ModelConfig& config, const Mesh& mesh,
                                               const KernelTable& kernels,
                                               const DispatcherSettings& dispatcher,
                                               const OptimizerSettings& settings,
                                               const std::set<std::string>& frozen);

}  // namespace moeloom
