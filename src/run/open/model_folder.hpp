// What lies in the folder of a model, before it is opened.
#pragma once

#include "moeloom/run/options.hpp"

namespace moeloom {

/// The model of a command that loads no weights: of a run, a checkpoint or a folder with config.json, or a
/// shape from flags with the vocabulary of its tokenizer. Throws IoError, ConfigError.
ModelConfig config_of(const ModelOptions& model);

/// Of a new model: a row for each id of its tokenizer, unless `vocab` says otherwise. Throws IoError,
/// ConfigError.
Index vocabulary_of(const ModelOptions& model);

/// Whether a folder has a config.json and nothing that looks like weights: these are then initial ones.
/// Throws IoError for weights that cannot be loaded, because training from others would not be noticed.
bool holds_config_alone(const std::filesystem::path& folder);

/// The folder of an adapter: of a run its newest checkpoint. What it lacks is told where it is read.
std::filesystem::path resolve_adapter_folder(const std::filesystem::path& named);

}  // namespace moeloom
