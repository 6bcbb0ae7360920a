// moeloom as a person starts it, for tests: a whole command, its exit code and all that it printed.
#pragma once

#include <string>

#include "program/program_testing.hpp"

namespace moeloom::testing {

/// `moeloom words`, under mpirun unless ranks is 0. `cache` takes the place of the user's cache folder.
inline Outcome moeloom_command(const std::string& words, int ranks, const std::string& cache) {
  return shell("export XDG_CACHE_HOME=" + cache + "; " + (ranks == 0 ? alone() : on_ranks(ranks)) + words);
}

}  // namespace moeloom::testing
