#include "comm/process_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <malloc.h>
#include <map>
#include <optional>
#include <string>
#include <unistd.h>

namespace moeloom {

namespace {

/// The number behind a name in a file of such pairs; none where it is not there.
std::optional<Index> number_of(const std::string& path, const std::string& wanted) {
  std::ifstream file(path);
  for (std::string name; file >> name; file.ignore(std::numeric_limits<std::streamsize>::max(), '\n'))
    if (Index value = 0; name == wanted && file >> value) return value;
  return std::nullopt;
}

/// A file that holds one number; none where it holds a word, as "max".
std::optional<Index> number_in(const std::string& path) {
  std::ifstream file(path);
  Index value = 0;
  return file >> value ? std::optional(value) : std::nullopt;
}

/// What the limits of this process's control group and those above it leave; none: no limit. Cached files
/// that are not in use would make room.
std::optional<Index> left_by_groups() {
  std::string line;
  std::ifstream file("/proc/self/cgroup");
  while (std::getline(file, line) && !line.starts_with("0::")) {
  }
  std::optional<Index> least;
  for (std::string group = line.starts_with("0::/") ? line.substr(3) : "/";;) {
    const std::string folder = "/sys/fs/cgroup" + group + "/";
    const auto limit = number_in(folder + "memory.max"), used = number_in(folder + "memory.current");
    if (limit && used) {
      const Index left = *limit - *used + number_of(folder + "memory.stat", "inactive_file").value_or(0);
      least = std::min(least.value_or(left), std::max<Index>(left, 0));
    }
    if (group.size() <= 1) return least;
    group.resize(std::max<std::size_t>(group.rfind('/'), 1));
  }
}

/// Of /proc/self/status, in bytes; what the system does not tell is left out.
std::map<std::string, Index> status_bytes() {
  std::ifstream file("/proc/self/status");
  std::map<std::string, Index> bytes;
  // A line is "RssAnon:      1234 kB".
  for (std::string name; file >> name; file.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (!name.starts_with("Rss") && name != "VmRSS:" && name != "VmHWM:") continue;
    Index kibibytes = 0;
    file >> kibibytes;
    bytes[name] = 1024 * kibibytes;
  }
  return bytes;
}

Index private_part(std::map<std::string, Index>& bytes) {
  const bool tells = bytes.contains("RssAnon:") && bytes.contains("RssFile:");
  return tells ? bytes["RssAnon:"] + bytes["RssFile:"] : bytes["VmRSS:"];
}

}  // namespace

Index private_bytes() {
  std::map<std::string, Index> bytes = status_bytes();
  return private_part(bytes);
}

Index memory_of_this_node() {
  return Index{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
}

Index available_memory() {
  const Index of_machine = 1024 * number_of("/proc/meminfo", "MemAvailable:").value_or(0);
  return std::min(of_machine, left_by_groups().value_or(of_machine));
}

Index held_bytes(const NodeMemory* memory) {
  return private_bytes() + (memory == nullptr ? 0 : memory->bytes());
}

void return_freed_blocks() {
#ifdef M_MMAP_THRESHOLD
  constexpr int kLarge = 2 << 20;
  mallopt(M_MMAP_THRESHOLD, kLarge);  // said, it no longer grows by itself, nor does the next
  mallopt(M_TRIM_THRESHOLD, 4 * kLarge);
#endif
}

Index peak_held_bytes(const NodeMemory* memory) {
  std::map<std::string, Index> bytes = status_bytes();
  const Index shared = bytes["VmRSS:"] - private_part(bytes);
  return bytes["VmHWM:"] - shared + (memory == nullptr ? 0 : memory->bytes());
}

}  // namespace moeloom
