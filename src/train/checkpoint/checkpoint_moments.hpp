// AdamW's moments and update counts in a checkpoint, by parameter and global expert.
#pragma once

#include "train/checkpoint/checkpoint.hpp"

namespace moeloom {

/// Elements [begin, begin + values.size()) of one of the file's tensors, which are floats whatever the
/// moments are: a run goes on with the same numbers, or in another format.
struct MomentPart {
  std::string name;
  Index begin = 0;
  MomentView values;
};
/// What this rank owns. A parameter lies in the file as in memory, its groups by their global id. The parts
/// are the optimizer's blocks, whose borders are the same at every mesh.
std::vector<MomentPart> owned_parts(const ParameterStore& store, ShardedOptimizer& optimizer);

/// Of the whole model: what is trained; Muon's weights have no exp_avg_sq.
std::vector<TensorSpec> moment_specs(const ModelConfig& config, const ParameterStore& store,
                                     OptimizerKind kind);

/// By tensor, of this rank's parts alone: a tensor is shared among ranks, so its checksum is a sum of those
/// of its parts.
std::vector<std::int64_t> part_checksums(const std::vector<TensorSpec>& specs,
                                         const std::vector<MomentPart>& parts);
/// Collective over the world.
TensorChecksums sum_checksums(const std::vector<TensorSpec>& specs, std::vector<std::int64_t> mine,
                              const Communicator& world);

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
