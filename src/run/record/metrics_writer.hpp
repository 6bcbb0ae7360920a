// RUN/metrics.jsonl as it grows, flushed after every step, so that a killed run keeps what it measured.
#pragma once

#include "io/line_file.hpp"
#include "moeloom/run/events.hpp"

#include "record/metrics.hpp"

namespace moeloom {

class MetricsWriter {
 public:
  /// Keeps what the file has of steps before `first_step`, so that no step appears twice after a resume. The
  /// old file stays until the shortened one is whole. Throws IoError.
  MetricsWriter(const std::filesystem::path& path, Index first_step);
  /// -> what is to be warned of: that lines wait from now on, as for a full disk, or that those that waited
  /// are written.
  std::optional<Event> append(const StepMetrics& metrics);
  /// Why the last line waits; empty: it is written.
  const std::string& error() const { return error_; }

 private:
  LineFile file_;
  std::string error_;
};

}  // namespace moeloom
