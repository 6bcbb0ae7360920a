// A model that is asked, before its weights are loaded.
#pragma once

#include "moeloom/base/violations.hpp"
#include "moeloom/model/hf/config.hpp"
#include "moeloom/run/host.hpp"
#include "train/checkpoint/verify.hpp"

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

/// The model that `options` name, which every rank must have been told alike, with what host.flags adds.
/// Collective over the world; throws AgreedError with all that is wrong, what was `found` before among it.
AskedModel open_asked(const Communicator& world, const AskOptions& options, const RunHost& host,
                      const Violations& found);

/// Calls host.begin, which an answer follows. Collective over the world; throws AgreedError.
void tell_begin(const RunHost& host, const Communicator& world);

}  // namespace moeloom
