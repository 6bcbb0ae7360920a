// What routers did, kept: of this rank token after token, and of all ranks as a file, in global token order.
// So the file does not depend on the mesh, the micro-batches, the threads or the dispatcher.
#pragma once

#include "io/routing_file.hpp"
#include "moeloom/model/hf/config.hpp"
#include "train/trainer.hpp"

#include <optional>

namespace moeloom {

/// Numbers of the layers that have experts.
std::vector<Index> sparse_layers_of(const ModelConfig& config);
/// tokens: of a step over all ranks, or of a text.
RoutingHeading routing_heading_of(const ModelConfig& config, Index tokens, Index sequence_length,
                                  std::uint64_t seed);

/// Of this rank, forward after forward.
class RoutingCollector {
 public:
  /// Adds the choices of the decoder's last forward, and the tokens it had.
  void add(const Decoder& decoder, std::span<const std::int32_t> input_ids);
  void clear();
  const std::vector<std::int32_t>& input_ids() const { return input_ids_; }
  /// [sparse layer], each [T, K].
  const std::vector<RecordedRouting>& layers() const { return layers_; }

 private:
  std::vector<std::int32_t> input_ids_;
  std::vector<RecordedRouting> layers_;
};

/// The steps of a run, each on the disk when it ended.
class RoutingRecorder {
 public:
  /// Of the steps [from, to). The world must outlive it.
  RoutingRecorder(std::filesystem::path path, RoutingHeading heading, Index from, Index to,
                  const Communicator& world)
      : path_(std::move(path)), heading_(std::move(heading)), from_(from), to_(to), world_(world) {}

  /// Makes the file: a place that cannot be written is met before the first step. kept_before > 0: of a file
  /// that is there, the steps before stay. Collective; throws AgreedError, also for a file of another
  /// heading.
  void start(Index kept_before = 0);
  /// A micro-batch of this rank, after its forward: TrainerHooks::after.
  void note(MicroBatchPlace place, const Batch& batch, const Decoder& decoder);
  /// The micro-batches of a step were noted; drops them instead if the step was left out, as one that was not
  /// finite. Collective; throws AgreedError, as for a full disk, or for slots that are not top_k a token.
  void end_step(Index step, bool left_out);

  const std::filesystem::path& path() const { return path_; }

 private:
  void write_step(Index step);

  std::filesystem::path path_;
  RoutingHeading heading_;
  Index from_, to_;
  const Communicator& world_;
  RoutingCollector mine_;
  std::optional<RoutingFileWriter> writer_;  // rank 0
};

}  // namespace moeloom
