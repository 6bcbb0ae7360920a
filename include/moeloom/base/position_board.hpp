// Where a rank is, written by itself with a few plain stores, so that another thread or process can read it
// while the rank is stuck.
//
// A caller makes one, gives it to a run (RunHost::board) or a communicator (report_to), and keeps it alive
// longer than those. For another process to read it, it has to lie in memory that both share.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/base/phase.hpp"

#include <atomic>
#include <string>

namespace moeloom {

/// What a rank does: training, or what comes before, between and after steps.
enum class Activity { kStarting, kLoading, kTraining, kValidating, kSaving, kEnding };
/// "starting", "loading", "training", "validating", "saving", "ending".
std::string_view name_of(Activity activity);

/// A copy of a board at one moment.
struct Position {
  std::int64_t moves = 0;  // how often the rank has gone on to something since its start
  Activity activity = Activity::kStarting;
  Index step = -1, micro_batch = -1;  // the last that has begun, from 0; -1: none yet
  Index layer = -1;                   // -1: before, between or after the layers
  bool backward = false;              // the loss, or what comes after it in the step
  Phase phase = Phase::kOther;
  std::string call;      // of MPI, in which it is; empty: in none
  Index waits_for = -1;  // the world rank whose message it waits for; -1: none in particular
};

/// One process writes, any may read; no call blocks or throws. A reader that meets a write sees a position
/// that is half old: it reads again until `moves` is what it was.
class PositionBoard {
 public:
  /// The activity begins: no layer, phase kOther.
  void enter(Activity activity) {
    activity_.store(activity, std::memory_order_relaxed);
    place(-1, false);
    enter(Phase::kOther);
  }
  /// A micro-batch of a step begins: Activity::kTraining, no layer.
  void enter_step(Index step, Index micro_batch) {
    activity_.store(Activity::kTraining, std::memory_order_relaxed);
    step_.store(step, std::memory_order_relaxed);
    micro_batch_.store(micro_batch, std::memory_order_relaxed);
    place(-1, false);
  }
  /// A layer begins, counted from 0; -1: none.
  void place(Index layer, bool backward) {
    layer_.store(layer, std::memory_order_relaxed);
    backward_.store(backward, std::memory_order_relaxed);
    move();
  }
  /// A phase begins, in the layer that was placed.
  void enter(Phase phase) {
    phase_.store(phase, std::memory_order_relaxed);
    move();
  }
  /// A call of MPI begins; null: it has ended. `name`: a literal, at the same address in the writing and the
  /// reading process, as after fork(). waits_for: a world rank; -1: all.
  void enter_call(const char* name, Index waits_for = -1) {
    call_.store(name, std::memory_order_relaxed);
    waits_for_.store(waits_for, std::memory_order_relaxed);
    move();
  }

  /// The rank has gone on, at the same place. Several threads may say so at once: what counts is that `moves`
  /// changes.
  void move() { moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

  /// By a thread or process that need not be the writer's.
  Position read() const;

 private:
  std::atomic<std::int64_t> moves_{0};
  std::atomic<Activity> activity_{Activity::kStarting};
  std::atomic<Index> step_{-1}, micro_batch_{-1}, layer_{-1};
  std::atomic<bool> backward_{false};
  std::atomic<Phase> phase_{Phase::kOther};
  std::atomic<const char*> call_{nullptr};
  std::atomic<Index> waits_for_{-1};
};

/// board->move() for the next of many things of one place: a tensor, a piece of a file. board: null where
/// none is kept.
inline void go_on(PositionBoard* board) {
  if (board != nullptr) board->move();
}

}  // namespace moeloom
