#include "cli/terminal.hpp"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <fstream>
#include <string>
#include <string_view>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace moeloom {
namespace {

constexpr std::array<std::string_view, 6> kLaunchers = {"mpirun",  "mpiexec", "orterun",
                                                        "prterun", "prun",    "mpiexec.hydra"};

/// A terminal that may be behind stderr; closed again if this opened it.
class Terminal {
 public:
  Terminal() {
    if (isatty(STDERR_FILENO) != 0) {
      descriptor_ = STDERR_FILENO;
    } else if (stderr_is_pipe() && launched_by_mpi()) {
      const std::string path = "/proc/" + std::to_string(getppid()) + "/fd/2";
      descriptor_ = open(path.c_str(), O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
      opened_ = descriptor_ >= 0;
    }
  }
  ~Terminal() {
    if (opened_) close(descriptor_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  bool found() const { return descriptor_ >= 0 && isatty(descriptor_) != 0; }
  Index columns() const {
    winsize size{};
    const bool known = found() && ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : 80;
  }

 private:
  static bool stderr_is_pipe() {
    struct stat status {};
    return fstat(STDERR_FILENO, &status) == 0 && S_ISFIFO(status.st_mode);
  }
  static bool launched_by_mpi() {
    std::ifstream file("/proc/" + std::to_string(getppid()) + "/comm");
    std::string name;
    std::getline(file, name);
    return std::ranges::find(kLaunchers, name) != kLaunchers.end();
  }

  int descriptor_ = -1;
  bool opened_ = false;
};

}  // namespace

bool stderr_is_watched() {
  return Terminal().found();
}

bool progress_is_live(ProgressMode mode, LogLevel level, bool watched) {
  if (mode == ProgressMode::kAuto) return watched && level <= LogLevel::kInfo;
  return mode == ProgressMode::kOn;
}

Index terminal_columns() {
  return Terminal().columns();
}

}  // namespace moeloom
