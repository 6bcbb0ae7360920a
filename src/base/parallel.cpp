#include "moeloom/base/parallel.hpp"

#include "base/meanwhile.hpp"

#include <mutex>

#include <omp.h>

namespace moeloom {

void set_threads(int threads) {
  omp_set_num_threads(std::max(1, threads));
}

int threads() {
  return omp_get_max_threads();
}

int thread_index() {
  return omp_get_thread_num();
}

namespace detail {

void run_tasks(Index count, void (*task)(void*, Index), void* context) {
  if (count <= 1 || threads() == 1 || omp_in_parallel()) {
    for (Index i = 0; i < count; ++i) {
      task(context, i);
      do_meanwhile();
    }
    return;
  }
  std::exception_ptr first;
  std::mutex guard;
#pragma omp parallel for schedule(dynamic, 1)
  for (Index i = 0; i < count; ++i) {
    try {
      task(context, i);
      do_meanwhile();
    } catch (...) {
      const std::lock_guard lock(guard);
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace detail
}  // namespace moeloom
