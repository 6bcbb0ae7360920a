// A manifest of what several ranks wrote: each sums pieces, one writes them down.
#pragma once

#include "io/manifest.hpp"
#include "moeloom/comm/communicator.hpp"

namespace moeloom {

/// Lines for write_manifest(), of pieces as the folder has them now. board: sees each. Throws IoError.
std::string sums_text(const std::filesystem::path& folder, const std::vector<FilePiece>& pieces,
                      PositionBoard* board = nullptr);

/// Writes the manifest from all ranks' lines; files that are in none of them are summed here. One rank calls
/// it. Throws IoError, also where no rank summed a piece: then none wrote it.
void write_manifest(const std::filesystem::path& folder, const std::vector<std::string>& sums_of_ranks);

}  // namespace moeloom
