// moeloom as a person starts it, for tests: a whole command, its exit code and all that it printed.
#pragma once

#include <array>
#include <cstdio>
#include <string>
#include <sys/wait.h>

namespace moeloom::testing {

struct Outcome {
  int exit_code = 0;
  std::string output;  // stdout and stderr
};

/// `moeloom words`, under mpirun unless ranks is 0. `cache` takes the place of the user's cache folder.
inline Outcome moeloom_command(const std::string& words, int ranks, const std::string& cache) {
  Outcome outcome;
  const std::string program = MOELOOM_BINARY_DIR "/moeloom ";
  const std::string run = ranks == 0 ? program : "mpirun -n " + std::to_string(ranks) + " " + program;
  const std::string command = "( . " MOELOOM_SOURCE_DIR "/launch/env.sh; export XDG_CACHE_HOME=" + cache +
                              "; timeout -k 5 120 " + run + words + " ) 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  for (std::size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    outcome.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  return outcome;
}

}  // namespace moeloom::testing
