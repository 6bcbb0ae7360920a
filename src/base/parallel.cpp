#include "moeloom/base/parallel.hpp"

#include "base/meanwhile.hpp"

#include <mutex>

#include <omp.h>

namespace moeloom {
namespace {

/// Of the parallel_for that the thread runs in, none outside. OpenMP's own number is not asked for: a program
/// may call us in a region of its own, whose threads are more than ours.
struct Place {
  int index = 0, team = 0;
};
Place& place() {
  thread_local Place own;
  return own;
}

class InTeam {
 public:
  InTeam() : before_(place()) { place() = {omp_get_thread_num(), omp_get_num_threads()}; }
  ~InTeam() { place() = before_; }
  InTeam(const InTeam&) = delete;
  InTeam& operator=(const InTeam&) = delete;

 private:
  Place before_;
};

}  // namespace

void set_threads(int threads) {
  omp_set_num_threads(std::max(1, threads));
}

int threads() {
  return std::max(omp_get_max_threads(), place().team);
}

int thread_index() {
  return place().index;
}

namespace detail {

void run_tasks(Index count, void (*task)(void*, Index), void* context) {
  if (count <= 1 || omp_get_max_threads() == 1 || omp_in_parallel()) {
    for (Index i = 0; i < count; ++i) {
      task(context, i);
      do_meanwhile();
    }
    return;
  }
  std::exception_ptr first;
  std::mutex guard;
#pragma omp parallel
  {
    const InTeam in_team;
#pragma omp for schedule(dynamic, 1) nowait  // the region ends with a barrier anyway
    for (Index i = 0; i < count; ++i) {
      try {
        task(context, i);
        do_meanwhile();
      } catch (...) {
        const std::lock_guard lock(guard);
        if (!first) first = std::current_exception();
      }
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace detail
}  // namespace moeloom
