// What this process's control groups leave it: a container's part of its machine.
//
// Version 2 has one tree of groups, version 1 one for each kind of limit. Limits of the groups above count
// too. Where a container sees its host's name of its group, no folder has that name, and the tree begins with
// the container's own.
#pragma once

#include "moeloom/base/index.hpp"

#include <filesystem>
#include <optional>

namespace moeloom {

/// Processors that all processes of a group may keep busy together.
struct ProcessorQuota {
  double processors = 0;
  std::int64_t group = 0;  // equal for processes that share it
};

/// Of the group with the fewest, the outermost of several; none: no limit. `root` is another one in tests.
std::optional<ProcessorQuota> processor_quota(const std::filesystem::path& root = "/");

/// Bytes until the nearest limit; none: no limit. Cached files that are not in use would make room.
std::optional<Index> memory_left_by_groups(const std::filesystem::path& root = "/");

/// Those that this process may run on, by its affinity (taskset, a cpuset, a launcher's binding).
int bound_processors();

/// How many threads this process can run at once: the processors that it may run on, or fewer by its quota;
/// at least 1.
int usable_processors();

}  // namespace moeloom
