#include "moeloom/train/checkpoint.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/io/checksum.hpp"

#include "checkpoint_files.hpp"
#include "checkpoint_moments.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// What this rank holds must have the bytes that were saved.
void verify_weights(const SafetensorsFolder& folder, const ParameterStore& store,
                    const TensorChecksums& checksums) {
  for (const Parameter& parameter : store.parameters())
    for (const HfSlice& slice : parameter.spec.slices) {
      const SafetensorsFile& file = folder.file_of(slice.name);
      const auto kept = checksums.find(slice.name);
      if (kept == checksums.end())
        throw IoError(file.path().string() + ": no checksum was kept for tensor " + slice.name);
      if (const std::string found = hex_text(checksum(file.raw(slice.name))); found != kept->second)
        throw IoError(file.path().string() + ": tensor " + slice.name + " is damaged: its checksum was " +
                      kept->second + " at save and is " + found);
    }
}

WeightCoverage load_verified(const fs::path& checkpoint, ParameterStore& store, const ModelConfig& config,
                             const TensorChecksums& checksums) {
  const SafetensorsFolder folder(checkpoint);
  const WeightCoverage coverage = load_weights(store, folder, config);
  verify_weights(folder, store, checksums);
  return coverage;
}

TrainerState read_state(const fs::path& checkpoint) {
  return TrainerState::from(Document::read(checkpoint / kStateFile));
}

void write_files(const fs::path& folder, const ParameterStore& store, ShardedOptimizer& optimizer,
                 const Mesh& mesh, const ModelConfig& config, TrainerState& state) {
  state.mesh = mesh.shape();
  state.times = gather_times(store, optimizer, mesh);
  state.weight_checksums = save_weights(store, config, mesh, folder / kWeightsFile);
  state.moment_checksums = save_moments(folder / kMomentsFile, store, optimizer, mesh, config);
  agree(mesh.world(), [&] {
    if (mesh.world().rank() != 0) return;
    config.to_document().write(folder / kConfigFile);
    state.to_document().write(folder / kStateFile);
  });
}

}  // namespace

fs::path save_checkpoint(const fs::path& run, const ParameterStore& store, ShardedOptimizer& optimizer,
                         const Mesh& mesh, const ModelConfig& config, TrainerState state) {
  const Communicator& world = mesh.world();
  const bool leads = world.rank() == 0;
  const Index step = state.step;
  try {
    agree(world, [&] {
      if (leads) begin_partial(run, step);
    });
    write_files(partial_path(run, step), store, optimizer, mesh, config, state);
    agree(world, [&] {
      if (leads) publish_partial(run, step);
    });
  } catch (...) {
    if (leads) discard_partial(run, step);
    throw;
  }
  return checkpoint_path(run, step);
}

TrainerState load_checkpoint(const fs::path& checkpoint, ParameterStore& store, ShardedOptimizer& optimizer,
                             const Mesh& mesh, const ModelConfig& config) {
  TrainerState state;
  agree(mesh.world(), [&] {
    state = read_state(checkpoint);
    load_verified(checkpoint, store, config, state.weight_checksums);
    restore_times(state.times, store, optimizer);
  });
  load_moments(checkpoint / kMomentsFile, store, optimizer, mesh, config, state.moment_checksums);
  return state;
}

WeightCoverage load_model(const fs::path& folder, ParameterStore& store, const Mesh& mesh,
                          const ModelConfig& config) {
  WeightCoverage coverage;
  agree(mesh.world(), [&] {
    coverage = is_checkpoint(folder)
                   ? load_verified(folder, store, config, read_state(folder).weight_checksums)
                   : load_weights(store, SafetensorsFolder(folder), config);
  });
  return coverage;
}

}  // namespace moeloom
