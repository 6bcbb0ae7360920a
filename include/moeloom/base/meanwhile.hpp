// What a rank sees to while it computes, such as messages that travel.
//
// Products are loops of tasks, and MPI moves messages in its own calls alone. So the thread that runs such a
// loop asks between two of its tasks whether there is something to see to, whoever put it there; or, where it
// has a progress thread (base/progress_thread.hpp), hands that over for the time of the loop.
#pragma once

#include "moeloom/base/interlude.hpp"

namespace moeloom {

struct StandIn;

/// While it lives, the thread that made it does `work` after each of its tasks of a parallel_for, and
/// wherever do_meanwhile() is called; so it does the work of those made before that still live. They end in
/// the reverse order of their making. `work` may itself be such a loop, in which nothing is done meanwhile.
/// A progress thread does it at any time of a loop, so no task may touch what `work` touches.
class Meanwhile {
 public:
  explicit Meanwhile(Interlude work);
  ~Meanwhile();
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

  /// The work of `latest` and of all before it.
  static void do_all(const Meanwhile* latest);

 private:
  Interlude work_;
  const Meanwhile* before_;
};

/// For a long piece of work that is no parallel_for.
void do_meanwhile();

/// While it lives, the calling thread runs tasks and leaves what stands to its progress thread, if it has one
/// and does not leave it already.
class Computing {
 public:
  Computing();
  ~Computing() { take_back(); }
  Computing(const Computing&) = delete;
  Computing& operator=(const Computing&) = delete;

  /// Ends it. Throws what a work has thrown in the progress thread.
  void end();

 private:
  void take_back() noexcept;

  StandIn* left_to_ = nullptr;
};

}  // namespace moeloom
