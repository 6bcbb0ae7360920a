#include "comm/process_memory.hpp"

#include "comm/control_groups.hpp"

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
  return std::min(of_machine, memory_left_by_groups().value_or(of_machine));
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
