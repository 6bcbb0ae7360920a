// AdamW's moments and update counts in a checkpoint, by parameter and global expert.
#pragma once

#include "moeloom/train/checkpoint/checkpoint.hpp"

namespace moeloom {

/// Writes both moments -> checksums by tensor. Collective over the world; throws AgreedError.
///
/// A tensor is shared among ranks, so its checksum is a sum of those of its parts. The parts are the
/// optimizer's blocks, whose borders are the same at every mesh.
TensorChecksums save_moments(const std::filesystem::path& path, const ParameterStore& store,
                             ShardedOptimizer& optimizer, const Mesh& mesh, const ModelConfig& config);

/// Reads what this rank owns. Collective over the world; throws AgreedError, also for a checksum that
/// differs.
void load_moments(const std::filesystem::path& path, const ParameterStore& store, ShardedOptimizer& optimizer,
                  const Mesh& mesh, const ModelConfig& config, const TensorChecksums& checksums);

/// Collective over the world.
std::map<std::string, std::vector<Index>> gather_times(const ParameterStore& store,
                                                       ShardedOptimizer& optimizer, const Mesh& mesh);

/// Throws IoError for a parameter that is not there or has another number of experts.
void restore_times(const std::map<std::string, std::vector<Index>>& times, const ParameterStore& store,
                   ShardedOptimizer& optimizer);

}  // namespace moeloom
