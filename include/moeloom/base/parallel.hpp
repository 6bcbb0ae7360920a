// Threads of one rank: a loop over tasks on OpenMP's team.
//
// A task's result may depend on its number, never on the thread that runs it or on how many there are; that
// is how every sum keeps its bits for any thread count.
#pragma once

#include "moeloom/base/index.hpp"

#include <algorithm>
#include <exception>
#include <type_traits>

namespace moeloom {

/// Threads that parallel_for uses in this process from now on; at least 1. The setting lives in OpenMP's
/// runtime.
void set_threads(int threads);
int threads();
/// The calling thread's place in the team of the parallel_for it runs in, 0 outside; in [0, threads()).
int thread_index();

namespace detail {
void run_tasks(Index count, void (*task)(void*, Index), void* context);
}

/// Runs body(0) ... body(count - 1) in any order on the rank's threads; the first exception is rethrown here.
/// Nested calls run on the calling thread. After each of its own tasks the calling thread does what is to be
/// done meanwhile (base/meanwhile.hpp).
template <typename Body>
void parallel_for(Index count, Body&& body) {
  using Stored = std::remove_reference_t<Body>;
  detail::run_tasks(
      count, [](void* context, Index i) { (*static_cast<Stored*>(context))(i); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

/// body() as the one task of such a loop.
template <typename Body>
void as_task(Body&& body) {
  parallel_for(1, [&](Index) { body(); });
}

/// The same over ranges of at most `block` items: body(begin, end). Blocks do not depend on the thread count.
template <typename Body>
void parallel_blocks(Index count, Index block, Body&& body) {
  parallel_for(ceil_div(count, block), [&](Index i) { body(i * block, std::min(count, (i + 1) * block)); });
}

}  // namespace moeloom
