// A checkpoint in the making, in stages: what a rank does alone, and what the ranks tell each other between.
//
// A stage's own part calls no MPI, so that a thread can run it beside the steps.
#pragma once

#include "train/checkpoint/checkpoint.hpp"

#include "checkpoint/checkpoint_moments.hpp"

namespace moeloom {

class CheckpointSave {
 public:
  static constexpr int kStages = 4;  // make the files, fill them, sum them, publish the folder

  /// Everything that is given must outlive it. Collective over the world.
  CheckpointSave(CheckpointRun run, const ParameterStore& store, ShardedOptimizer& optimizer,
                 const Mesh& mesh, const ModelConfig& config, TrainerState state);
  CheckpointSave(const CheckpointSave&) = delete;
  CheckpointSave& operator=(const CheckpointSave&) = delete;

  /// What is written is from now on that of this moment, kept in copied_bytes() at `copy`.
  void copy_to(float* copy);

  /// Where the watcher of this rank sees what is written; beside steps too, as the rank may come to wait for
  /// it.
  void show_on(PositionBoard* board) { board_ = board; }

  /// This rank's part of a stage, which every rank has ended the one before. Throws IoError.
  void run(int stage);
  /// After every rank has run the stage without an error. Collective over the world.
  void exchange(int stage);
  /// After an error: removes what there is, as far as the system lets it.
  void discard() noexcept;

  std::filesystem::path path() const;

 private:
  bool leads() const { return mesh_.world().rank() == 0; }
  void make_files();
  void fill_files();
  void publish();
  void require_all_written();

  const CheckpointRun run_;
  const Mesh& mesh_;
  const ModelConfig& config_;
  TrainerState state_;
  const std::filesystem::path folder_;  // the partial one
  std::vector<WeightPart> weights_;
  std::vector<MomentPart> moments_;
  const std::vector<TensorSpec> moment_specs_;
  const ShardPlan weights_plan_;
  const ShardPlan moments_plan_;

  PositionBoard* board_ = nullptr;

  // What the stages leave for the next ones.
  std::vector<FilePiece> pieces_;  // that this rank sums
  std::string weight_checksums_;
  std::vector<std::int64_t> moment_checksums_;
  std::string sums_;
  std::vector<std::string> sums_of_ranks_;
};

}  // namespace moeloom
