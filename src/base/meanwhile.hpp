// What a rank sees to while it computes, such as messages that travel.
//
// Products are loops of tasks, and MPI moves messages in its own calls alone. So the thread that runs such a
// loop asks between two of its tasks whether there is something to see to, whoever put it there.
#pragma once

#include "base/interlude.hpp"

namespace moeloom {

/// While it lives, the thread that made it does `work` after each of its tasks of a parallel_for, and
/// wherever do_meanwhile() is called; so it does the work of those made before that still live. They end in
/// the reverse order of their making. `work` may itself be such a loop, in which nothing is done meanwhile.
class Meanwhile {
 public:
  explicit Meanwhile(Interlude work);
  ~Meanwhile();
  Meanwhile(const Meanwhile&) = delete;
  Meanwhile& operator=(const Meanwhile&) = delete;

 private:
  friend void do_meanwhile();

  Interlude work_;
  const Meanwhile* before_;
};

/// For a long piece of work that is no parallel_for.
void do_meanwhile();

}  // namespace moeloom
