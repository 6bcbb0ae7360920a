#include "watch/leftovers.hpp"

#include <algorithm>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// Whose session a folder of this name holds: "pid.N" of Open MPI 4; "prterun.HOST.N.UID", and with prted on
/// other hosts, of 5. 0: it is none.
pid_t launcher_of(const std::string& folder) {
  static const std::regex session(R"(pid\.(\d{1,9})|prte(run|d|)\..+\.(\d{1,9})\.\d+)");
  std::smatch match;
  if (!std::regex_match(folder, match, session)) return 0;
  return static_cast<pid_t>(std::stol(match[1].matched ? match[1] : match[3]));
}

/// The folder of a session on the way to a file, and its launcher.
void note_session(const fs::path& file, Leftovers& left) {
  fs::path way;
  for (const fs::path& part : file.parent_path()) {
    way /= part;
    const pid_t launcher = launcher_of(part.string());
    // One that cannot be seen, as from a container of this rank's own, is not known to be dead later.
    if (launcher == 0 || process_state(launcher) == 'X') continue;
    left.session = way;
    left.launcher = launcher;
    return;
  }
}

/// A line of /proc/PID/maps, as "7f00-7f10 rw-s 00000000 00:1a 12 /dev/shm/vader_segment.vm.0.4fff0001.0":
/// shared, and named HOST.UID.JOB.RANK. A user's sm_segment.npy is none.
bool is_of_segment(const std::string& line, const std::string& name) {
  static const std::regex segment(R"((vader|sm)_segment\..+\.\d+\.[0-9a-f]+\.\d+)");
  const std::size_t access = line.find(' ') + 1;
  return line.compare(access + 3, 1, "s") == 0 && std::regex_match(name, segment);
}

/// What follows its name in /proc/PID/stat: state, parent, group, session, terminal, its group, flags, ...
std::string stat_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t end = line.rfind(')');
  return end == std::string::npos || end + 2 >= line.size() ? "" : line.substr(end + 2);
}

}  // namespace

char process_state(pid_t process) {
  const std::string stat = stat_of(process);
  return stat.empty() ? 'X' : stat[0];
}

bool is_ending(pid_t process) {
  std::istringstream stat(stat_of(process));
  char state = 'X';
  long skipped = 0;
  unsigned flags = 0;
  stat >> state;
  for (int field = 0; field < 5; ++field) stat >> skipped;
  stat >> flags;
  constexpr unsigned kExiting = 4;  // PF_EXITING: its files may be closed, it has not become a zombie yet
  return state == 'X' || state == 'Z' || (flags & kExiting) != 0;
}

Leftovers find_leftovers(pid_t process) {
  Leftovers left;
  std::ifstream maps("/proc/" + std::to_string(process) + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const fs::path file = line.substr(at);
    const std::string name = file.filename().string();
    // In /dev/shm, or where btl_vader_backing_directory says.
    if (is_of_segment(line, name)) left.segments.push_back(file);
    const bool of_session =
        line.find("/ompi.") != std::string::npos || line.find("/prte") != std::string::npos;
    if (of_session && left.session.empty()) note_session(file, left);
  }
  return left;
}

void remove_leftovers(const Leftovers& left) {
  std::error_code ignored;
  for (const fs::path& segment : left.segments) fs::remove(segment, ignored);
  // Ranks hear of their launcher's end from its closed sockets, before it is a zombie.
  if (left.launcher != 0 && is_ending(left.launcher)) fs::remove_all(left.session, ignored);
}

}  // namespace moeloom
