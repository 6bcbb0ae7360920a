#include "moeloom/train/checkpoint/checkpoint.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/model/freeze.hpp"
#include "moeloom/model/hf/slice_io.hpp"

#include <algorithm>
#include <iterator>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/checkpoint_moments.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// What this rank holds must have the bits that were saved.
void verify_weights(const SafetensorsFolder& folder, const ParameterStore& store,
                    const TensorChecksums& checksums) {
  for (const Parameter& parameter : store.parameters())
    for (const HfSlice& slice : parameter.spec.slices) {
      if (!folder.has(slice.name)) continue;
      const std::string file = folder.file_of(slice.name).path().string();
      const std::string key = slice_key(slice, parameter.spec.cols);
      const auto kept = checksums.find(key);
      if (kept == checksums.end()) throw IoError(file + ": no checksum was kept for tensor " + key);
      if (const std::string found = checksum_text(parameter, slice); found != kept->second)
        throw IoError(file + ": tensor " + key + " is damaged: its checksum was " + kept->second +
                      " at save and is " + found);
    }
}

WeightCoverage load_verified(const fs::path& checkpoint, ParameterStore& store, const ModelConfig& config,
                             const TensorChecksums& checksums, const NamePatterns& allowed = {}) {
  const SafetensorsFolder folder(checkpoint);
  const WeightCoverage coverage = load_weights(store, folder, config, allowed);
  verify_weights(folder, store, checksums);
  return coverage;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

/// Moments of what was frozen then are not there, and moments of what is frozen now would be lost.
void require_same_frozen(const fs::path& checkpoint, const TrainerState& state, const ParameterStore& store) {
  const std::vector<std::string> now = frozen_names(store);
  if (now == state.frozen) return;
  std::vector<std::string> only_then;
  std::vector<std::string> only_now;
  std::ranges::set_difference(state.frozen, now, std::back_inserter(only_then));
  std::ranges::set_difference(now, state.frozen, std::back_inserter(only_now));
  throw ConfigError({checkpoint.string() + " was trained with other parameters frozen: only then " +
                     list_of(only_then) + "; only now " + list_of(only_now) +
                     "; resume without freeze patterns of your own, or begin a new run with it as the "
                     "model folder"});
}

TrainerState read_state(const fs::path& checkpoint) {
  return TrainerState::from(Document::read(checkpoint / kStateFile));
}

void write_files(const CheckpointRun& run, const ParameterStore& store, ShardedOptimizer& optimizer,
                 const Mesh& mesh, const ModelConfig& config, TrainerState& state) {
  const fs::path folder = partial_path(run.folder, state.step);
  state.mesh = mesh.shape();
  state.frozen = frozen_names(store);
  state.times = gather_times(store, optimizer, mesh);
  state.weight_checksums = save_weights(store, config, mesh, folder, {.shard_bytes = run.shard_bytes});
  state.moment_checksums = save_moments(folder / kMomentsFile, store, optimizer, mesh, config);
  agree(mesh.world(), [&] {
    if (mesh.world().rank() != 0) return;
    config.to_document().write(folder / kConfigFile);
    state.to_document().write(folder / kStateFile);
  });
}

}  // namespace

fs::path save_checkpoint(const CheckpointRun& run, const ParameterStore& store, ShardedOptimizer& optimizer,
                         const Mesh& mesh, const ModelConfig& config, TrainerState state) {
  const Communicator& world = mesh.world();
  const bool leads = world.rank() == 0;
  const Index step = state.step;
  try {
    agree(world, [&] {
      if (leads) begin_partial(run.folder, step);
    });
    write_files(run, store, optimizer, mesh, config, state);
    agree(world, [&] {
      if (leads) publish_partial(run.folder, step);
    });
  } catch (...) {
    if (leads) discard_partial(run.folder, step);
    throw;
  }
  return checkpoint_path(run.folder, step);
}

TrainerState load_checkpoint(const fs::path& checkpoint, ParameterStore& store, ShardedOptimizer& optimizer,
                             const Mesh& mesh, const ModelConfig& config) {
  TrainerState state;
  agree(mesh.world(), [&] {
    state = read_state(checkpoint);
    require_same_frozen(checkpoint, state, store);
    load_verified(checkpoint, store, config, state.weight_checksums);
    restore_times(state.times, store, optimizer);
  });
  load_moments(checkpoint / kMomentsFile, store, optimizer, mesh, config, state.moment_checksums);
  return state;
}

WeightCoverage load_model(const fs::path& folder, ParameterStore& store, const Mesh& mesh,
                          const ModelConfig& config, const NamePatterns& allowed) {
  WeightCoverage coverage;
  agree(mesh.world(), [&] {
    coverage = is_checkpoint(folder)
                   ? load_verified(folder, store, config, read_state(folder).weight_checksums, allowed)
                   : load_weights(store, SafetensorsFolder(folder), config, allowed);
  });
  return coverage;
}

}  // namespace moeloom
