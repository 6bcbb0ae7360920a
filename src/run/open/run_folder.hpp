// The folder of a run: one run a folder, never two mixed.
#pragma once

#include "moeloom/run/options.hpp"

namespace moeloom {

/// Whether --resume names the run in --run, or one of its checkpoints: then the folder's files go on.
bool goes_on_in_its_folder(const RunOptions& run);

/// Written at validations, and last. A run without it has not ended, even after its last step, nor one whose
/// page says that it goes on.
inline constexpr const char* kReportFile = "report.html";
/// Whether a resumed run that is at its last step already has only to be ended: it goes on in its folder,
/// which has no report.
bool lacks_its_end(const RunOptions& run);

/// Throws ConfigError for a folder that holds another run, and for --overwrite of the run that is resumed.
void check_run_folder(const RunOptions& run);

/// Whether --overwrite would remove that model, which the run needs to the end.
bool overwrites(const RunOptions& run, const std::filesystem::path& model);

/// Throws IoError.
void make_run_folder(const std::filesystem::path& folder);
/// Writes train.conf into the folder, which is this job's; with --overwrite an old run in it is removed.
/// Throws IoError.
void begin_run_folder(const TrainOptions& options);

}  // namespace moeloom
