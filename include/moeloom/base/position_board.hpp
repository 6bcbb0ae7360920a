// Where a rank is, written by itself with a few plain stores, so that another process can read it while the
// rank is stuck.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/base/phase.hpp"

#include <atomic>
#include <string>

namespace moeloom {

/// What a rank does outside steps, and that it trains.
enum class Activity { kStarting, kLoading, kTraining, kValidating, kSaving, kEnding };
std::string_view name_of(Activity activity);

/// A copy of a board.
struct Position {
  std::int64_t moves = 0;  // how often the rank has gone on to something since its start
  Activity activity = Activity::kStarting;
  Index step = -1, micro_batch = -1;  // the last one begun; -1: none yet
  Index layer = -1;                   // -1: before, between or after the layers
  bool backward = false;              // from the loss on
  Phase phase = Phase::kOther;
  std::string call;      // of MPI, in which it is; empty: in none
  Index waits_for = -1;  // the world rank whose message it waits for; -1: none in particular
};

/// In memory of two processes; one writes, the other reads. A reader that meets a write sees a position that
/// is half old: it asks again.
class PositionBoard {
 public:
  void enter(Activity activity) {
    activity_.store(activity, std::memory_order_relaxed);
    place(-1, false);
    enter(Phase::kOther);
  }
  void enter_step(Index step, Index micro_batch) {
    activity_.store(Activity::kTraining, std::memory_order_relaxed);
    step_.store(step, std::memory_order_relaxed);
    micro_batch_.store(micro_batch, std::memory_order_relaxed);
    place(-1, false);
  }
  void place(Index layer, bool backward) {
    layer_.store(layer, std::memory_order_relaxed);
    backward_.store(backward, std::memory_order_relaxed);
    move();
  }
  void enter(Phase phase) {
    phase_.store(phase, std::memory_order_relaxed);
    move();
  }
  /// `name`: a literal, at the same address in both processes; null: the call has ended.
  void enter_call(const char* name, Index waits_for = -1) {
    call_.store(name, std::memory_order_relaxed);
    waits_for_.store(waits_for, std::memory_order_relaxed);
    move();
  }

  /// On, at the same place. Several threads may say so at once: what counts is that the number changes.
  void move() { moves_.store(moves_.load(std::memory_order_relaxed) + 1, std::memory_order_release); }

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

/// On with the next of many things of one place: a tensor, a piece of a file. board: null where none is kept.
inline void go_on(PositionBoard* board) {
  if (board != nullptr) board->move();
}

}  // namespace moeloom
