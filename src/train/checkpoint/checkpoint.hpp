// A training run on disk: RUN/checkpoint-<step>, a Hugging Face folder with the optimizer's state beside the
// weights.
//
//   config.json             as transformers reads it
//   model.safetensors       weights, fp32, HF names; beyond a size shards and their index
//   adapter_config.json, adapter_model.safetensors
//                           in place of both where an adapter is trained, as PEFT reads them
//   optimizer.safetensors   exp_avg.<parameter>, exp_avg_sq.<parameter>, as they lie in memory
//   tokenizer.json, ...     those of the model that training began with
//   trainer_state.json      step, seed, data, mesh and GMM decision at save, update counts, checksums, and
//                           which parameters are frozen
//   manifest.json           size and sums of the files above; verify.hpp checks them
//
// The manifest finds damage of any byte on the disk, without a model. The state's checksums are of what the
// ranks held: they also find what was lost between memory and disk, at save and at load.
//
// Nothing in it depends on the mesh: any (dp, ep) can resume. It is written as .checkpoint-<step>.partial and
// renamed when every byte is on the disk, so a folder with the final name is whole.
#pragma once

#include "model/hf/weights/weights_io.hpp"
#include "model/hf/weights/word_files.hpp"
#include "moeloom/train/checkpoint_folders.hpp"
#include "train/sharded_optimizer.hpp"

namespace moeloom {

/// What a run must find again besides tensors. The caller fills the first block; save_checkpoint adds the
/// second, which is read back by load_checkpoint.
struct TrainerState {
  Index step = 0;  // updates done, which is the number of the next step
  std::uint64_t seed = 0;
  std::string data_file;
  Index data_bytes = 0;
  Index global_batch = 0;
  Index sequence_length = 0;
  std::string dtype = "fp32";  // of the experts' products
  bool gmm_applied = false;
  std::string gmm_reason;
  Document settings;  // whatever else the program wants back

  MeshShape mesh;                                   // at save
  std::map<std::string, std::vector<Index>> times;  // updates of each parameter, by global expert
  std::vector<std::string> frozen;                  // parameters that have no moments, sorted
  TensorChecksums weight_checksums;
  TensorChecksums moment_checksums;

  Document to_document() const;
  /// Throws IoError for a key that is missing or of another kind, and for a newer format.
  static TrainerState from(const Document& document);
};

/// Where checkpoints go, the most that a file of weights holds, and the tokenizer and template that go along.
struct CheckpointRun {
  std::filesystem::path folder;
  Index shard_bytes = kShardBytes;
  WordFiles words = {};
};

/// Writes RUN/checkpoint-<state.step>, replacing one of that name -> its path. Leftovers of killed saves in
/// RUN are removed. Collective over the world; throws AgreedError with the system's text if any rank fails,
/// and then nothing is left of this checkpoint and the others are as they were.
std::filesystem::path save_checkpoint(const CheckpointRun& run, const ParameterStore& store,
                                      ShardedOptimizer& optimizer, const Mesh& mesh,
                                      const ModelConfig& config, TrainerState state);

/// Weights, moments and update counts of `checkpoint`, saved at any mesh, checked against their checksums. Of
/// an adapter its factors; the weights that it adds to come from config.adapter->base.
/// config is the checkpoint's own, and the store must have the same parameters frozen. Collective over the
/// world; throws AgreedError that lists what does not fit or is damaged; the store and the optimizer are then
/// half filled.
TrainerState load_checkpoint(const std::filesystem::path& checkpoint, ParameterStore& store,
                             ShardedOptimizer& optimizer, const Mesh& mesh, const ModelConfig& config);

/// Weights alone, of a checkpoint (checked against its checksums) or of any HF folder. Tensors that `allowed`
/// matches may be missing and keep their values. Collective over the world; throws AgreedError.
WeightCoverage load_model(const std::filesystem::path& folder, ParameterStore& store, const Mesh& mesh,
                          const ModelConfig& config, const NamePatterns& allowed = {});

/// Writes config.json, weights and `words`, whole or not at all, into the new or empty `folder`; of a model
/// with an adapter PEFT's two files. Collective over the world; throws AgreedError.
void export_model(const std::filesystem::path& folder, const ParameterStore& store, const Mesh& mesh,
                  const ModelConfig& config, const WeightFormat& format, const WordFiles& words = {});

/// The folder that a person means: the newest complete checkpoint of a run, a checkpoint itself, or any HF
/// folder with config.json and weights, or one of PEFT. Throws IoError saying what was looked for.
std::filesystem::path resolve_checkpoint(const std::filesystem::path& path);

/// Whether a folder has what load_checkpoint needs; a plain HF folder has not.
bool is_checkpoint(const std::filesystem::path& folder);

/// Those that may go where `keep` are to stay (0: all): the one of step `written`, which was just saved,
/// stays, and the newest others. One rank asks.
std::vector<std::filesystem::path> old_checkpoints(const std::filesystem::path& run, Index keep,
                                                   Index written);

/// Each loses its name first, so that what a kill leaves is no checkpoint. One rank calls it.
void remove_checkpoints(const std::vector<std::filesystem::path>& checkpoints);

/// Removes the checkpoints of later steps than `step`: a run that goes on from there takes another course
/// -> what was removed, the newest first. One rank calls it.
std::vector<std::filesystem::path> remove_checkpoints_after(const std::filesystem::path& run, Index step);

inline constexpr const char* kDamagedPrefix = "damaged-";

/// Gives it the name damaged-checkpoint-STEP, in place of what had it, and takes it for none any more: what a
/// disk does not give today it may give tomorrow. Throws IoError; one rank calls it.
void set_aside(const std::filesystem::path& checkpoint);

/// Removes what killed saves left behind -> what was removed. One rank calls it.
std::vector<std::filesystem::path> remove_partial_checkpoints(const std::filesystem::path& run);

}  // namespace moeloom
