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
  std::filesystem::path adapter = {};  // that was named beside the model
  ModelConfig config;
  /// Where config.adapter's factors are.
  const std::filesystem::path& adapter_folder() const { return adapter.empty() ? start.folder : adapter; }
};

/// The words of a command line, which every rank must have been told alike.
std::string said_by(int argc, char** argv);

/// The model that `options` name, after their parsing has added what was wrong to `violations`. What is wrong
/// with the folder or the environment comes to it; with a folder, `check` may add more of its own. Collective
/// over the world; throws AgreedError with all of it.
AskedModel agree_on_model(const AskOptions& options, const std::string& said, const Communicator& world,
                          Violations& violations,
                          const std::function<void(const AskedModel&, Violations&)>& check);

/// What a command was asked: a Request has `options` with `ask` in them, and `model`. check(request,
/// violations) comes when both are known, and may open more. Collective over the world; throws AgreedError
/// with all that is wrong.
template <typename Request, typename Check>
Request agree_on_request(int argc, char** argv, const Communicator& world,
                         decltype(Request::options) (*parse)(int, const char* const*, Violations&),
                         Check check) {
  Request request;
  Violations violations;
  agree(world, [&] { request.options = parse(argc, argv, violations); });
  agree_on_model(request.options.ask, said_by(argc, argv), world, violations,
                 [&](const AskedModel& model, Violations& more) {
                   request.model = model;
                   check(request, more);
                 });
  return request;
}

class LoadedModel {
 public:
  /// decodes: the weights are streamed for a few rows at a time; else tiles multiply, which give the same
  /// bits at every mesh and batch. Collective over the world.
  LoadedModel(const AskedModel& asked, const AskOptions& options, Communicator world, bool decodes);

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
