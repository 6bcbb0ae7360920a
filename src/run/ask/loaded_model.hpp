// A model that is asked, not trained: its weights over the ranks.
#pragma once

#include "model/decoder.hpp"

#include "ask/asked_model.hpp"
#include "open/run_decision.hpp"

namespace moeloom {

class LoadedModel {
 public:
  /// All until it has gone. Collective over the world; throws AgreedError.
  LoadedModel(const AskedModel& asked, const Mesh& mesh, const RunHost& host);

  /// Weights are streamed for a few rows at a time.
  Decoder& to_decode() { return with(decoding_); }
  /// Tiles multiply, which give the same bits at every mesh and batch.
  Decoder& to_score() { return with(scoring_); }
  const Mesh& mesh() const { return mesh_; }
  const ParameterStore& store() const { return *store_; }
  bool speaks() const { return mesh_.world().rank() == 0; }

 private:
  Decoder& with(const KernelTable& kernels) {
    decoder_->use(kernels);
    return *decoder_;
  }

  const Mesh& mesh_;
  std::optional<ParameterStore> store_;
  DispatcherSettings dispatcher_;
  KernelTable decoding_, scoring_;
  std::optional<Decoder> decoder_;
};

}  // namespace moeloom
