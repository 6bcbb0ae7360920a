// A run's events on their way to its caller.
#pragma once

#include "moeloom/run/host.hpp"

namespace moeloom {

class Log {
 public:
  /// `host` must outlive it.
  explicit Log(const RunHost& host) : host_(host) {}

  void info(const Event& event) const { say(LogLevel::kInfo, event); }
  void warn(const Event& event) const { say(LogLevel::kWarn, event); }
  void error(const Event& event) const { say(LogLevel::kError, event); }
  void record(const Event& event) const {
    if (host_.record) host_.record(event);
  }

 private:
  void say(LogLevel level, const Event& event) const {
    if (host_.say) host_.say(level, event);
  }

  const RunHost& host_;
};

}  // namespace moeloom
