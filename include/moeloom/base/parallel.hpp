// Threads of one rank: a loop over tasks on OpenMP's team. No collective: each rank has its own threads.
//
// A task's result may depend on its number, never on the thread that runs it or on how many there are; that
// is how every sum keeps its bits for any thread count.
#pragma once

#include "moeloom/base/index.hpp"

#include <algorithm>
#include <exception>
#include <type_traits>

namespace moeloom {

/// Threads that a parallel_for of the calling thread uses from now on; less than 1 counts as 1. The setting
/// is OpenMP's own (omp_set_num_threads): a program's other OpenMP loops on this thread follow it too.
void set_threads(int threads);
/// How many that are now; in a task, at least as many as run it.
int threads();
/// The calling thread's place in the team of the parallel_for it runs in, 0 outside, also in an OpenMP region
/// of the program; in [0, threads()). For workspaces of a thread, never for results.
int thread_index();

namespace detail {
void run_tasks(Index count, void (*task)(void*, Index), void* context);
}

/// Runs body(0) ... body(count - 1) in any order on the rank's threads and returns when all have ended; none
/// for count <= 0. The first exception is rethrown here; which other tasks have run by then is not said.
/// Nested calls run on the calling thread. While the library has messages under way, the calling thread moves
/// them between its tasks, so that a task of many milliseconds holds them up.
template <typename Body>
void parallel_for(Index count, Body&& body) {
  using Stored = std::remove_reference_t<Body>;
  detail::run_tasks(
      count, [](void* context, Index i) { (*static_cast<Stored*>(context))(i); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

/// body() as the one task of such a loop, on the calling thread.
template <typename Body>
void as_task(Body&& body) {
  parallel_for(1, [&](Index) { body(); });
}

/// parallel_for over ranges of at most `block` items: body(begin, end). Where a range begins does not depend
/// on the number of threads. block >= 1.
template <typename Body>
void parallel_blocks(Index count, Index block, Body&& body) {
  parallel_for(ceil_div(count, block), [&](Index i) { body(i * block, std::min(count, (i + 1) * block)); });
}

}  // namespace moeloom
