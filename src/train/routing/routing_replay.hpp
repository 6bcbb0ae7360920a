// A recorded routing forced on a run: every token of a step visits the experts of the file, whatever the
// routers score. Weights are the routers' own, of those experts, so that gradients flow.
//
// Which step of the file a step of the run takes: where the file's steps have the texts that the run has at
// the same numbers, the step of its number, and a step that the file lacks routes by itself; so a run and its
// replay are the same bits. Where the texts are others, as those of another data file, all steps of the file
// in turn, from step 0 on: then the file is a load, not a memory.
#pragma once

#include "io/routing_file.hpp"
#include "moeloom/model/hf/config.hpp"
#include "train/trainer.hpp"

namespace moeloom {

class RoutingReplay {
 public:
  /// Reads the file on this rank. Throws IoError, or ConfigError with every number in which the file differs
  /// from the model or the batch.
  RoutingReplay(const std::filesystem::path& path, const ModelConfig& config, const BatchShape& batch,
                Index world);

  /// Compares texts, for a run that takes the steps [from, to). Throws ConfigError if the file has the run's
  /// texts, but none of those steps. No collective: every rank finds the same.
  void match(const BatchSource& batches, Index from, Index to, bool may_be_over = false);
  bool goes_by_number() const { return by_number_; }
  /// Of the steps [from, to), those that are forced.
  Index forced_steps(Index from, Index to) const;

  /// Fills batch.given_topk_idx by batch.first_token: TrainerHooks::before. Throws IoError for a block that
  /// is damaged.
  void give(MicroBatchPlace place, Batch& batch) const;

  const RoutingFile& file() const { return file_; }

 private:
  /// In the file; none: the step routes by itself.
  std::optional<Index> place_of(Index step) const;

  RoutingFile file_;
  BatchShape batch_;
  Index world_;
  bool by_number_ = false;
};

}  // namespace moeloom
