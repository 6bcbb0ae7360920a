// Several runs on one page: their lines over each other, their numbers side by side.
#pragma once

#include "report/page.hpp"

#include <filesystem>
#include <vector>

#include "summary/run_data.hpp"

namespace moeloom {

/// What the folders of runs hold, under the shortest names that tell them apart. Throws IoError for a folder
/// without metrics, and for metrics without a whole step.
std::vector<RunRecord> read_runs(const std::vector<std::filesystem::path>& folders);

Report runs_report(const std::vector<RunRecord>& runs);

}  // namespace moeloom
