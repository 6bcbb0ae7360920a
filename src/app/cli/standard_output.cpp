#include "cli/standard_output.hpp"

#include "moeloom/base/errors.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace moeloom {

void finish_standard_output() {
  errno = 0;
  std::cout.flush();
  const bool out = std::cout.good() && std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (out) return;
  const std::string why = errno == 0 ? std::string() : std::string(": ") + std::strerror(errno);
  throw DiskError("cannot write the standard output" + why);
}

}  // namespace moeloom
