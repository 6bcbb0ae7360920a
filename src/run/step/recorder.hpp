// What a run tells of its steps: a line of metrics.jsonl each, events, and progress for the host.
#pragma once

#include "train/collapse_watch.hpp"
#include "train/trainer.hpp"

#include "open/opened_run.hpp"
#include "record/metrics_writer.hpp"
#include "summary/live_page.hpp"

namespace moeloom {

class Recorder {
 public:
  /// run: until it has gone.
  explicit Recorder(const OpenedRun& run);

  /// The run's folder is there, and steps begin: goes on with what it tells of the steps before. Rank 0
  /// throws IoError.
  void open();
  /// metrics and row_slices: of this step, of all ranks.
  void record(const StepReport& report, StepMetrics metrics, Index row_slices);
  /// The run's page as far as the run has come, where the last one is old enough; and of a run that stops
  /// here. Rank 0 writes.
  void show();
  void show_stopped();

  /// By the steps so far; rank 0's counts.
  Index tokens_seen() const { return tokens_seen_; }
  /// Of the steps since open().
  double seconds() const { return seconds_; }
  /// [layer][E], of the last step that was not skipped.
  const std::vector<std::vector<Index>>& last_rows() const { return last_rows_; }
  /// Why metrics.jsonl lacks steps; empty: it does not. Rank 0.
  std::string error() const { return metrics_ ? metrics_->error() : std::string(); }

 private:
  void go_on_watching(const std::vector<StepMetrics>& earlier);
  void tell_of_slices(Index step, Index row_slices);
  void tell(const StepMetrics& metrics) const;
  void tell_of_page(const std::string& why_not) const;

  const OpenedRun& run_;
  CollapseWatch collapse_watch_;
  std::optional<MetricsWriter> metrics_;  // rank 0
  LivePage page_;                         // rank 0
  std::vector<std::vector<Index>> last_rows_;
  double start_seconds_ = 0;  // from the process's start; until a line says so
  double seconds_ = 0;
  Index steps_ = 0;
  Index tokens_seen_ = 0;
  Index memory_bytes_ = 0;  // the most that a rank held at the end of a step
  bool told_of_slices_ = false;
};

}  // namespace moeloom
