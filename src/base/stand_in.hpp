// What a computing thread and its progress thread share.
#pragma once

#include "moeloom/base/meanwhile.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>

namespace moeloom {

struct StandIn {
  /// After which a computing thread does the work itself: a progress thread that has a processor looks many
  /// times in it.
  static constexpr std::chrono::milliseconds kLate{1};

  // Of the computing thread.
  bool computes = false;

  // Of who has the turn: the computing thread, but while it computes.
  std::mutex turn;
  const Meanwhile* works = nullptr;
  std::exception_ptr failure;  // of a work, until the computing thread has it
  long looks = 0;

  std::atomic<std::chrono::steady_clock::time_point> last_look{};

  // What the progress thread waits for.
  std::mutex waking;
  std::condition_variable changed;
  bool stands = false;  // there is work
  bool ends = false;

  bool is_late() const { return std::chrono::steady_clock::now() - last_look.load() > kLate; }
  void say(bool StandIn::*what, bool is) {
    {
      const std::lock_guard lock(waking);
      this->*what = is;
    }
    changed.notify_one();
  }
};

/// That of the calling thread; null: it has none.
StandIn*& stand_in_of_thread();
/// Whether something stands on the calling thread.
bool anything_stands();

}  // namespace moeloom
