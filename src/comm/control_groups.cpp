#include "comm/control_groups.hpp"

#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <sched.h>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// A file that holds one number; none where it holds a word, as "max".
std::optional<Index> number_in(const fs::path& path) {
  std::ifstream file(path);
  Index value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// The number behind a name in a file of such pairs.
std::optional<Index> number_of(const fs::path& path, const std::string& wanted) {
  std::ifstream file(path);
  for (std::string name; file >> name; file.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (Index value = 0; name == wanted && file >> value) return value;
  return std::nullopt;
}

bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

/// Where the tree is mounted that `controllers`, a list, or empty for version 2, belongs to.
fs::path tree_of(const fs::path& root, const std::string& controllers, const std::string& kind) {
  const fs::path mounts = root / "sys/fs/cgroup";
  if (!controllers.empty()) return is_folder(mounts / kind) ? mounts / kind : mounts / controllers;
  return is_folder(mounts / "unified") ? mounts / "unified" : mounts;  // beside trees of version 1, or alone
}

/// Appends the folders of a group and of those above it, as far as they are there.
void add_folders(const fs::path& tree, std::string group, std::vector<fs::path>& folders) {
  for (; group.size() > 1; group.resize(group.rfind('/')))
    if (is_folder(tree / group.substr(1))) folders.push_back(tree / group.substr(1));
  folders.push_back(tree);
}

/// Of this process's groups that may limit `kind` ("cpu", "memory"); a line is "number:controllers:/group".
std::vector<fs::path> group_folders(const fs::path& root, const std::string& kind) {
  std::vector<fs::path> folders;
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::vector<std::string> kinds = split(controllers, ',');
    if (controllers.empty() || std::ranges::find(kinds, kind) != kinds.end())
      add_folders(tree_of(root, controllers, kind), line.substr(second + 1), folders);
  }
  return folders;
}

/// "max 100000" or "150000 100000" of version 2; version 1 has two files, and -1 for no limit.
std::optional<double> processors_of(const fs::path& group) {
  std::ifstream both(group / "cpu.max");
  Index quota = 0, period = 0;
  if (!(both >> quota >> period)) {
    quota = number_in(group / "cpu.cfs_quota_us").value_or(0);
    period = number_in(group / "cpu.cfs_period_us").value_or(0);
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return static_cast<double>(quota) / static_cast<double>(period);
}

struct MemoryFiles {
  const char *limit, *used, *idle;  // idle: a name in memory.stat
};
constexpr std::array kMemoryFiles = {
    MemoryFiles{"memory.max", "memory.current", "inactive_file"},
    MemoryFiles{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}};
constexpr Index kNoLimit = Index{1} << 60;  // version 1 writes the largest number of pages

std::optional<Index> memory_left_by(const fs::path& group) {
  for (const MemoryFiles& files : kMemoryFiles) {
    const auto limit = number_in(group / files.limit), used = number_in(group / files.used);
    if (limit && used && *limit < kNoLimit)
      return std::max<Index>(*limit - *used + number_of(group / "memory.stat", files.idle).value_or(0), 0);
  }
  return std::nullopt;
}

/// Its number among all files of its tree.
std::int64_t identity_of(const fs::path& folder) {
  struct stat found {};
  return ::stat(folder.c_str(), &found) == 0 ? static_cast<std::int64_t>(found.st_ino) : 0;
}

}  // namespace

std::optional<ProcessorQuota> processor_quota(const fs::path& root) {
  std::optional<ProcessorQuota> least;
  for (const fs::path& group : group_folders(root, "cpu"))
    if (const auto processors = processors_of(group);
        processors &&
        (!least || *processors <= least->processors))  // of equals the outermost, which more share
      least = {*processors, identity_of(group)};
  return least;
}

std::optional<Index> memory_left_by_groups(const fs::path& root) {
  std::optional<Index> least;
  for (const fs::path& group : group_folders(root, "memory"))
    if (const auto left = memory_left_by(group)) least = std::min(least.value_or(*left), *left);
  return least;
}

int bound_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int usable_processors() {
  const int bound = bound_processors();
  const auto quota = processor_quota();
  return std::max(1, quota ? std::min(bound, static_cast<int>(quota->processors)) : bound);
}

}  // namespace moeloom
