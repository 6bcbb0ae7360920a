// A checkpoint that a thread writes while steps go on.
//
// What a rank writes is copied first, so the steps may change it. The thread calls no MPI: at the end of each
// stage it waits, and the ranks' own threads agree between two steps that all have come so far.
#pragma once

#include "moeloom/base/errors.hpp"
#include "train/checkpoint/checkpoint.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <thread>

namespace moeloom {

class CheckpointSave;

/// Bytes of the copy that this rank makes: its masters as far as it writes them, and its moments.
Index copied_bytes(const ParameterStore& store, ShardedOptimizer& optimizer, const Mesh& mesh);

/// At most one save is under way. Collective functions are called on every rank in the same order.
class BackgroundSave {
 public:
  /// What is given must outlive it.
  BackgroundSave(const ParameterStore& store, ShardedOptimizer& optimizer, const Mesh& mesh,
                 const ModelConfig& config);
  BackgroundSave(const BackgroundSave&) = delete;
  BackgroundSave& operator=(const BackgroundSave&) = delete;
  /// Waits for this rank's part, and gives up a save that is not done.
  ~BackgroundSave();

  /// Makes room for the copy, once for all saves, and has a thread write to it. Collective; throws
  /// AgreedError where a rank has none.
  void reserve();
  /// Copies, and begins to write. After reserve(); none may be under way. Collective.
  void begin(const CheckpointRun& run, TrainerState state);
  /// Whether a save is under way; the same on every rank.
  bool busy() const { return save_ != nullptr; }
  /// Whether this rank's part of the stage is done. Not collective: costs a glance.
  bool part_done() const { return part_done_.load(std::memory_order_acquire); }
  /// Where every rank's part is done, goes to the next stage; else waits for it -> the checkpoint, when the
  /// last stage was done. Collective; throws AgreedError if any rank failed: the save is then given up, as
  /// save_checkpoint() does it.
  std::optional<std::filesystem::path> advance();
  /// Waits for all of it. A save must be under way. Collective; throws AgreedError.
  std::filesystem::path finish();

 private:
  void touch_pages(Index bytes);
  void start_stage();
  void wait_for_part();
  void give_up() noexcept;

  const ParameterStore& store_;
  ShardedOptimizer& optimizer_;
  const Mesh& mesh_;
  const ModelConfig& config_;
  AlignedFloats copy_;
  std::unique_ptr<CheckpointSave> save_;
  int stage_ = 0;
  std::thread thread_;
  std::atomic<bool> part_done_ = false;
  std::string error_;  // of this rank's part
  Cause cause_ = Cause::kRequest;
};

}  // namespace moeloom
