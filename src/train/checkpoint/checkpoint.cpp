#include "train/checkpoint/checkpoint.hpp"

#include "model/freeze.hpp"
#include "model/hf/stored/slice_io.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <iterator>

#include "checkpoint/checkpoint_files.hpp"
#include "checkpoint/checkpoint_moments.hpp"
#include "checkpoint/checkpoint_save.hpp"

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// What this rank filled must have the bits that were saved. file_of(name): where a tensor was read from;
/// none where it was not. floats_of(parameter, slice, memory): as they were read.
template <typename FileOf, typename FloatsOf>
void verify_weights(const ParameterStore& store, const TensorChecksums& checksums, PositionBoard* board,
                    const FileOf& file_of, const FloatsOf& floats_of) {
  Matrix memory;
  for (const Parameter& parameter : store.parameters())
    for (const HfSlice& slice : parameter.spec.slices) {
      if (!parameter.is_filled_here) continue;
      const SafetensorsFile* const source = file_of(parameter.spec, slice.name);
      if (source == nullptr) continue;
      go_on(board);
      const std::string file = source->path().string();
      const std::string key = slice_key(slice, parameter.spec.cols);
      const auto kept = checksums.find(key);
      if (kept == checksums.end()) throw IoError(file + ": no checksum was kept for tensor " + key);
      if (const std::string found = checksum_text(floats_of(parameter, slice, memory)); found != kept->second)
        throw IoError(file + ": tensor " + key + " is damaged: its checksum was " + kept->second +
                      " at save and is " + found);
    }
}

ConstMatrixView held_floats(const Parameter& parameter, const HfSlice& slice, Matrix& memory) {
  return rows_of(parameter, slice).read(memory);
}

WeightCoverage load_verified(const fs::path& checkpoint, ParameterStore& store, const ModelConfig& config,
                             const TensorChecksums& checksums, const NamePatterns& allowed,
                             PositionBoard* board) {
  const SafetensorsFolder folder(checkpoint);
  const WeightCoverage coverage = load_weights(store, folder, config, allowed, board);
  const auto file_of = [&](const ParameterSpec&, const std::string& name) {
    return folder.has(name) ? &folder.file_of(name) : nullptr;
  };
  // A run that keeps bf16 may go on from one that kept more: then the file alone has all the bits.
  const auto floats_of = [&](const Parameter& parameter, const HfSlice& slice,
                             Matrix& memory) -> ConstMatrixView {
    if (parameter.spec.stored != Storage::kBf16) return held_floats(parameter, slice, memory);
    memory.reshape_uninitialised(slice.rows, parameter.spec.cols);
    read_slice(folder, config.stored, slice, memory);
    return memory;
  };
  verify_weights(store, checksums, board, file_of, floats_of);
  return coverage;
}

/// Of a checkpoint or any HF folder, but for what is an adapter's.
WeightCoverage load_own_weights(const fs::path& folder, ParameterStore& store, const ModelConfig& config,
                                const NamePatterns& allowed, PositionBoard* board);

/// The model that an adapter adds to, and the adapter that a checkpoint holds.
void load_adapted(const fs::path& checkpoint, ParameterStore& store, const ModelConfig& config,
                  const TensorChecksums& checksums, PositionBoard* board) {
  load_own_weights(config.adapter->base, store, config, {}, board);
  load_adapter(store, checkpoint, config, board);
  const SafetensorsFile file(checkpoint / kAdapterFile);
  const auto file_of = [&](const ParameterSpec& spec, const std::string&) {
    return spec.adapter ? &file : nullptr;
  };
  verify_weights(store, checksums, board, file_of, held_floats);
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

WeightCoverage load_own_weights(const fs::path& folder, ParameterStore& store, const ModelConfig& config,
                                const NamePatterns& allowed, PositionBoard* board) {
  return is_checkpoint(folder)
             ? load_verified(folder, store, config, read_state(folder).weight_checksums, allowed, board)
             : load_weights(store, SafetensorsFolder(folder), config, allowed, board);
}

}  // namespace

fs::path save_checkpoint(const CheckpointRun& run, const ParameterStore& store, ShardedOptimizer& optimizer,
                         const Mesh& mesh, const ModelConfig& config, TrainerState state) {
  CheckpointSave save(run, store, optimizer, mesh, config, std::move(state));
  save.show_on(mesh.world().board());
  try {
    for (int stage = 0; stage < CheckpointSave::kStages; ++stage) {
      agree(mesh.world(), [&] { save.run(stage); });
      save.exchange(stage);
    }
  } catch (...) {
    save.discard();
    throw;
  }
  return save.path();
}

TrainerState load_checkpoint(const fs::path& checkpoint, ParameterStore& store, ShardedOptimizer& optimizer,
                             const Mesh& mesh, const ModelConfig& config) {
  TrainerState state;
  agree(mesh.world(), [&] {
    state = read_state(checkpoint);
    require_same_frozen(checkpoint, state, store);
    if (config.adapter)
      load_adapted(checkpoint, store, config, state.weight_checksums, mesh.world().board());
    else
      load_verified(checkpoint, store, config, state.weight_checksums, {}, mesh.world().board());
    restore_times(state.times, store, optimizer);
  });
  store.settle();
  load_moments(checkpoint / kMomentsFile, store, optimizer, mesh, config, state.moment_checksums);
  return state;
}

WeightCoverage load_model(const fs::path& folder, ParameterStore& store, const Mesh& mesh,
                          const ModelConfig& config, const NamePatterns& allowed) {
  WeightCoverage coverage;
  agree(mesh.world(),
        [&] { coverage = load_own_weights(folder, store, config, allowed, mesh.world().board()); });
  return coverage;
}

}  // namespace moeloom
