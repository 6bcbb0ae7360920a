// What a run leaves and says in the end: an export, its page and its last lines.
#pragma once

#include "train/training_state.hpp"

#include "open/opened_run.hpp"
#include "step/outputs.hpp"
#include "summary/report.hpp"

namespace moeloom {

/// What the run's page shows but for its result. Rank 0.
ReportInfo page_info(const OpenedRun& run, const std::vector<std::vector<Index>>& last_rows);

struct RunResult {
  std::optional<double> validation;                // none: nothing is held out
  std::string text = {};                           // that the model wrote
  std::vector<std::vector<Index>> last_rows = {};  // [layer][E], of the last step that was not skipped
  double held_untold = 0;                          // seconds that saves held, which metrics.jsonl lacks
};

/// Where a folder for it was named. Collective.
void export_weights(const OpenedRun& run, const ParameterStore& store, Outputs& outputs);
/// What a rank held at most, and what was planned. rows: the dispatcher's; may be null. Collective.
void tell_peak(const OpenedRun& run, const TrainingState& model, const NodeMemory* rows);

// Rank 0 calls these two. They throw IoError.

/// RUN/report.html.
void write_page(const OpenedRun& run, const RunResult& result);
void tell_result(const OpenedRun& run, const RunResult& result);

}  // namespace moeloom
