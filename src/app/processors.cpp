#include "processors.hpp"

#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cstdlib>
#include <sched.h>
#include <thread>
#include <unistd.h>

namespace moeloom {
namespace {

int bound_processors() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0)
    return static_cast<int>(std::thread::hardware_concurrency());
  return CPU_COUNT(&mask);
}

}  // namespace

int threads_for(Index asked, const Communicator& node) {
  if (asked > 0) return static_cast<int>(asked);
  if (std::getenv("OMP_NUM_THREADS") != nullptr) return threads();
  const int bound = bound_processors();
  const bool shared = bound == static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  return std::max(1, shared ? bound / node.size() : bound);
}

}  // namespace moeloom
