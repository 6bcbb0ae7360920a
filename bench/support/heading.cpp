#include "support/heading.hpp"

#include "plan/rates/cpu_model.hpp"

#include <array>
#include <cstdio>
#include <memory>

namespace moeloom::bench {

std::string commit_text() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen("git rev-parse --short HEAD 2>/dev/null", "r"),
                                                   pclose);
  std::array<char, 64> line{};
  if (!pipe || std::fgets(line.data(), line.size(), pipe.get()) == nullptr) return "unknown";
  const std::string text = line.data();
  return text.substr(0, text.find('\n'));
}

std::string environment_line(int threads) {
  return "commit " + commit_text() + ", threads " + std::to_string(threads) + ", " + cpu_model();
}

}  // namespace moeloom::bench
