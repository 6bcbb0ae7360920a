// A process as the kernel shows it, and what Open MPI leaves behind on a node when a rank or its launcher is
// killed: segments of memory, and the folder of the session.
#pragma once

#include <filesystem>
#include <sys/types.h>
#include <vector>

namespace moeloom {

/// Of a process, as /proc/PID/stat has it: R, S, D, T, Z, ...; X: there is none.
char process_state(pid_t process);
/// It is gone, a zombie, or on the way there: it does nothing of its own any more.
bool is_ending(pid_t process);

struct Leftovers {
  std::vector<std::filesystem::path> segments;
  std::filesystem::path session;  // empty: the launcher made none
  pid_t launcher = 0;             // whose session it is, and who removes it while it lives
};

/// Of a process that has started MPI, from the files that it has mapped.
Leftovers find_leftovers(pid_t process);
/// After that process has ended. What other ranks have attached stays theirs without its name.
void remove_leftovers(const Leftovers& left);

}  // namespace moeloom
