// A run's metrics as columns: what the page's scripts draw, and the same in a few numbers.
#pragma once

#include "report/page.hpp"

#include <string>
#include <vector>

#include "record/metrics.hpp"
#include "summary/run_time.hpp"

namespace moeloom {

/// A run under its name.
struct RunRecord {
  std::string name;
  std::vector<StepMetrics> steps;
  std::vector<Restart> restarts = {};
  std::string configuration = {};                  // train.conf
  std::string loss_unit = "nats";                  // of its losses
  Index num_experts = 0;                           // of a sparse layer; 0: not known
  std::vector<std::vector<Index>> last_rows = {};  // [layer][E] of the last step; empty: not drawn
};

/// For src/report/run_page.js, which says what is drawn of it.
Document drawn_of(const std::vector<RunRecord>& runs);

/// A row for each line that is drawn: what it was at first, in between, at last and at most.
Section steps_section(const std::vector<RunRecord>& runs);
/// A row for each layer of a run: the mean of each figure, and the one that is worst.
Section layers_section(const RunRecord& run);
/// Mean seconds of a step, of each phase, with its share; a column a run.
Section phase_section(const std::vector<RunRecord>& runs);

}  // namespace moeloom
