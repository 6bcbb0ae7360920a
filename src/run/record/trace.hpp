// --trace FILE: what every rank did in a few steps, in the Trace Event Format that Perfetto and
// chrome://tracing open. A lane a rank: the step, inside it its phases, inside the experts' phase each
// product.
#pragma once

#include "base/phase_clock.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/run/options.hpp"

#include <fstream>
#include <span>

namespace moeloom {

/// How much later `theirs` stands than `mine` when both were read after each of several barriers: the median,
/// because a rank that woke up late spoils single pairs. In nanoseconds, as the readings.
std::int64_t clock_offset(std::span<const std::int64_t> mine, std::span<const std::int64_t> theirs);

/// One event a line, each with a comma after it, by begin; of spans that begin together the widest first, so
/// that they nest. Times are in microseconds since `origin`.
std::string trace_events(std::vector<Span> spans, Span::Clock::time_point origin, int rank);

/// FILE.partial while it is written, FILE afterwards; nothing stays of a run that did not get so far.
class TraceFile {
 public:
  /// Throws IoError.
  explicit TraceFile(std::filesystem::path path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  void append(const std::string& events) { file_ << events; }
  /// Throws IoError, as for a full disk.
  void finish(int ranks);

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::ofstream file_;
};

/// The recorder of one rank; its functions are called on all ranks alike.
class Trace {
 public:
  /// The steps of `run` that are asked for. Throws ConfigError if there are none.
  Trace(const TraceOptions& options, StepRange run, const Mesh& mesh);
  /// Opens the file on rank 0: a place that cannot be written is met before anything is measured. Collective;
  /// throws AgreedError.
  void open();

  bool covers(Index step) const { return range_.from <= step && step < range_.to; }
  bool ends_with(Index step) const { return step + 1 == range_.to; }
  /// Whether steps were recorded that are not written yet.
  bool pending() const { return !spans_.empty(); }

  /// run() of this step with everything that `clock` times in it. Collective.
  template <typename Run>
  auto record(Index step, PhaseClock& clock, const Run& run) {
    if (spans_.empty()) align();
    clock.record_into(&spans_);
    const auto begin = Span::Clock::now();
    auto report = run();
    spans_.push_back({SpanKind::kStep, "step", begin, Span::Clock::now(), step});
    clock.record_into(nullptr);
    return report;
  }

  /// Gathers and writes what was recorded so far; nothing can follow. Collective; throws AgreedError.
  void write();

  const std::filesystem::path& path() const { return path_; }

 private:
  void align();

  std::filesystem::path path_;
  StepRange range_;
  const Mesh& mesh_;
  std::optional<TraceFile> file_;  // rank 0
  std::vector<Span> spans_;
  Span::Clock::time_point origin_;
};

}  // namespace moeloom
