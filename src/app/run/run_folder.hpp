// The folder of a run: one run a folder, never two mixed.
#pragma once

#include "cli/options.hpp"

namespace moeloom {

/// Whether --resume names the run in --run, or one of its checkpoints: then the folder's files go on.
bool goes_on_in_its_folder(const RunOptions& run);

/// Throws IoError for a folder that holds another run, ConfigError for --overwrite of the run that is
/// resumed.
void check_run_folder(const RunOptions& run);

/// Makes the folder with its train.conf; with --overwrite an old run in it is removed. Throws IoError.
void make_run_folder(const TrainOptions& options);

}  // namespace moeloom
