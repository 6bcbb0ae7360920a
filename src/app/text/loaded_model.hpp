// A model that is asked, not trained: its weights over the ranks, with the kernels of decoding.
#pragma once

#include "moeloom/model/decoder.hpp"
#include "moeloom/train/checkpoint/verify.hpp"

#include "cli/environment.hpp"
#include "cli/options.hpp"
#include "run/record/log.hpp"
#include "run/start/run_decision.hpp"

namespace moeloom {

/// A model's folder and config, the same on every rank.
struct AskedModel {
  EnvironmentFlags flags;
  CheckedFolder start;
  ModelConfig config;
};

/// Collective over the world. `said`: what every rank must have been told alike. What is wrong with the
/// folder or the environment is added to `violations`; with a folder, `check` may add more of its own. Throws
/// AgreedError with all of it.
AskedModel agree_on_model(const AskOptions& options, const std::string& said, const Communicator& world,
                          Violations& violations,
                          const std::function<void(const AskedModel&, Violations&)>& check);

/// The words of a command line, for agree_on_model().
std::string said_by(int argc, char** argv);

class LoadedModel {
 public:
  /// decodes: the weights are streamed for a few rows at a time; else tiles multiply, which give the same
  /// bits at every mesh and batch. Collective over the world.
  LoadedModel(const AskedModel& asked, const AskOptions& options, Communicator world, bool decodes);

  const Mesh& mesh() const { return mesh_; }
  Decoder& decoder() { return *decoder_; }
  bool speaks() const { return mesh_.world().rank() == 0; }

 private:
  const Mesh mesh_;
  std::optional<ParameterStore> store_;
  DispatcherSettings dispatcher_;
  std::optional<Decoder> decoder_;
};

}  // namespace moeloom
