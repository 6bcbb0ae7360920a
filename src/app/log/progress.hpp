// One line on the terminal that says how far the run is, rewritten in place.
#pragma once

#include "moeloom/run/events.hpp"

#include <chrono>
#include <iosfwd>
#include <string>

namespace moeloom {

/// "  120/500 [####      ] loss 1.872  18.4k tokens/s  2:10 left", cut to `columns`.
std::string progress_text(const ProgressPoint& point, Index columns);

class ProgressLine {
 public:
  /// Nothing is ever written unless `live`. `out` must outlive it.
  ProgressLine(std::ostream& out, bool live) : out_(out), live_(live) {}
  /// Wipes the line.
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  bool live() const { return live_; }
  /// Rewrites the line, at most ten times a second; the last step always.
  void show(const ProgressPoint& point);
  void clear();

 private:
  using Clock = std::chrono::steady_clock;

  std::ostream& out_;
  bool live_;
  bool shown_ = false;
  Clock::time_point last_{};
};

}  // namespace moeloom
