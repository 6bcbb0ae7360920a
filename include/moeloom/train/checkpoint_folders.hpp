// What a run has left on the disk to go on from.
#pragma once

#include <filesystem>
#include <vector>

namespace moeloom {

/// Complete checkpoints of a run, oldest step first; none if there is no such folder. No
/// collective.
std::vector<std::filesystem::path> checkpoints_of(const std::filesystem::path& run);

}  // namespace moeloom
