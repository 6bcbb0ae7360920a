// When the last checkpoint is too old: --save-minutes.
#pragma once

#include <chrono>

namespace moeloom {

/// By the steady clock, which nobody sets back. Each rank has one; rank 0's counts.
class SaveClock {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  /// minutes = 0: never due.
  SaveClock(double minutes, Time now) : minutes_(minutes), last_(now) {}

  bool due(Time now) const {
    return minutes_ > 0 && std::chrono::duration<double, std::ratio<60>>(now - last_).count() >= minutes_;
  }
  /// A save began, whatever became of it.
  void restart(Time now) { last_ = now; }

 private:
  double minutes_;
  Time last_;
};

}  // namespace moeloom
