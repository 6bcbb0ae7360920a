// What a run has left on the disk to go on from.
#pragma once

#include <filesystem>
#include <vector>

namespace moeloom {

/// Complete checkpoints in a run's folder (checkpoint-<step>), smallest step first; none if there is no such
/// folder. Throws IoError where it cannot be listed. Of this rank alone, no collective: ranks that decide by
/// it must agree on what one of them saw.
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& run);

}  // namespace moeloom
