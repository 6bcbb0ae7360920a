// Where a run's model comes from: a run to go on with, a Hugging Face folder, or a shape from flags.
#pragma once

#include "base/violations.hpp"

#include "open/run_setup.hpp"

namespace moeloom {

/// Fills in what `inputs` says of the model, adding to `violations` what can be said against it for `world`
/// ranks. Throws IoError for a file, ConfigError for a model that is not supported.
void open_model(const TrainOptions& options, Index world, RunInputs& inputs, Violations& violations);

/// The model of a command that loads no weights: of a run, a checkpoint or a folder with config.json, or a
/// shape from flags with the vocabulary of its tokenizer. Throws IoError, ConfigError.
ModelConfig config_of(const ModelOptions& model);

/// Whether a folder has a config.json and nothing that looks like weights: these are then initial ones.
/// Throws IoError for weights that cannot be loaded, because training from others would not be noticed.
bool holds_config_alone(const std::filesystem::path& folder);

/// The folder of an adapter: of a run its newest checkpoint. What it lacks is told where it is read.
std::filesystem::path resolve_adapter_folder(const std::filesystem::path& named);

/// Positions of the final sample: its prompt and what follows.
Index sample_positions(const RunOptions& run);

}  // namespace moeloom
