// The page of a run that goes on.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "summary/report.hpp"

namespace moeloom {

/// Writes RUN/report.html again and again, in at most a fiftieth of the time: of a long run the metrics take
/// seconds to read.
class LivePage {
 public:
  /// Where the last one is long enough ago -> why it could not; empty: it is written, or it was not due. What
  /// fails of it, memory too, is no failure of the run.
  std::string write(const std::filesystem::path& run, const std::function<ReportInfo()>& info);
  /// Once more, at once, if there was any.
  std::string write_last(const std::filesystem::path& run, const std::function<ReportInfo()>& info);

 private:
  using Clock = std::chrono::steady_clock;  // the wall clock may be set back while the run goes on

  std::optional<Clock::time_point> due_;  // none: at once
  bool shown_ = false;                    // any was written
};

}  // namespace moeloom
