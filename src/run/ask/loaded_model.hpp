// A model that is asked, not trained: its weights over the ranks, with the kernels of decoding.
#pragma once

#include "model/decoder.hpp"
#include "moeloom/run/flags.hpp"
#include "moeloom/run/host.hpp"
#include "moeloom/run/options.hpp"
#include "train/checkpoint/verify.hpp"

#include "open/run_decision.hpp"
#include "record/log.hpp"

namespace moeloom {

/// A model's folder and config, the same on every rank.
struct AskedModel {
  RunFlags flags;
  CheckedFolder start;
  std::filesystem::path adapter = {};  // that was named beside the model
  ModelConfig config;
  /// Where config.adapter's factors are.
  const std::filesystem::path& adapter_folder() const { return adapter.empty() ? start.folder : adapter; }
};

/// The model that `options` name, which every rank must have been told alike (`said`), after their parsing
/// has added what was wrong to `violations`. What is wrong with the folder or the environment comes to it;
/// with a folder, `check` may add more of its own. Collective over the world; throws AgreedError with all of
/// it.
AskedModel agree_on_model(const AskOptions& options, const std::string& said,
                          const std::function<RunFlags()>& flags, const Communicator& world,
                          Violations& violations,
                          const std::function<void(const AskedModel&, Violations&)>& check);

class LoadedModel {
 public:
  /// decodes: the weights are streamed for a few rows at a time; else tiles multiply, which give the same
  /// bits at every mesh and batch. Collective over the world.
  LoadedModel(const AskedModel& asked, const AskOptions& options, Communicator world, bool decodes,
              const RunHost& host);

  const Mesh& mesh() const { return mesh_; }
  Decoder& decoder() { return *decoder_; }
  const ParameterStore& store() const { return *store_; }
  bool speaks() const { return mesh_.world().rank() == 0; }

 private:
  const Mesh mesh_;
  std::optional<ParameterStore> store_;
  DispatcherSettings dispatcher_;
  std::optional<Decoder> decoder_;
};

}  // namespace moeloom
