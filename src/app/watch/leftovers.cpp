#include "watch/leftovers.hpp"

#include <algorithm>
#include <fstream>
#include <string>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// The folder "pid.N" on the way to a file, and N.
void note_session(const fs::path& file, Leftovers& left) {
  fs::path way;
  for (const fs::path& part : file) {
    way /= part;
    const std::string name = part.string();
    if (!name.starts_with("pid.") || name.find_first_not_of("0123456789", 4) != std::string::npos) continue;
    left.session = way;
    left.launcher = static_cast<pid_t>(std::strtol(name.c_str() + 4, nullptr, 10));
    // One that cannot be seen, as from a container of this rank's own, is not known to be dead later.
    if (process_state(left.launcher) == 'X') left = {left.segments, {}, 0};
    return;
  }
}

}  // namespace

char process_state(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(')');  // of its name
  return end == std::string::npos || end + 2 >= line.size() ? 'X' : line[end + 2];
}

Leftovers find_leftovers(pid_t process) {
  Leftovers left;
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const fs::path file = line.substr(at);
    const std::string name = file.filename().string();
    if (file.parent_path() == "/dev/shm" &&
        (name.starts_with("vader_segment.") || name.starts_with("sm_segment.")))
      left.segments.push_back(file);
    if (line.find("/ompi.") != std::string::npos && left.session.empty()) note_session(file, left);
  }
  return left;
}

void remove_leftovers(const Leftovers& left) {
  std::error_code ignored;
  for (const fs::path& segment : left.segments) fs::remove(segment, ignored);
  if (left.launcher == 0) return;
  const char launcher = process_state(left.launcher);
  if (launcher == 'X' || launcher == 'Z') fs::remove_all(left.session, ignored);
}

}  // namespace moeloom
