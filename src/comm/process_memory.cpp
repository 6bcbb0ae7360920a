#include "moeloom/comm/process_memory.hpp"

#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <unistd.h>

namespace moeloom {

Index private_bytes() {
  std::ifstream file("/proc/self/status");
  std::optional<Index> anonymous, mapped;
  Index resident = 0;
  // A line is "RssAnon:      1234 kB".
  for (std::string name; file >> name; file.ignore(std::numeric_limits<std::streamsize>::max(), '\n')) {
    if (name != "RssAnon:" && name != "RssFile:" && name != "VmRSS:") continue;
    Index kibibytes = 0;
    file >> kibibytes;
    if (name == "RssAnon:") anonymous = kibibytes;
    if (name == "RssFile:") mapped = kibibytes;
    if (name == "VmRSS:") resident = kibibytes;
  }
  return 1024 * (anonymous && mapped ? *anonymous + *mapped : resident);
}

Index memory_of_this_node() {
  return Index{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
}

Index held_bytes(const NodeMemory* memory) {
  return private_bytes() + (memory == nullptr ? 0 : memory->bytes());
}

}  // namespace moeloom
