// One point, measured or skipped: what stands on a line of points.jsonl and of points.csv.
#pragma once

#include "measure/sample.hpp"
#include "measure/sweep/points.hpp"
#include "moeloom/base/statistics.hpp"
#include "moeloom/io/document.hpp"
#include "report/page.hpp"

namespace moeloom {

/// Flat, so that a line of JSON and a line of CSV say the same. Bytes are of one step.
struct EpRow {
  std::string point;     // text_of() and the rank's threads
  std::string settings;  // what else the numbers depend on
  std::string mode, scaling, workload;
  Index ranks = 1;
  Index dp = 1;
  Index ep = 1;
  std::string gmm;  // as asked, in the words of MOELOOM_GMM_PATCH
  bool gmm_applied = false;
  std::string gmm_reason;
  std::string dispatcher;  // as asked
  std::string dispatcher_used, dispatcher_reason;
  std::string dtype, dtype_used;
  Index tokens = 0;  // over all ranks
  Spread step_ms;    // of the slowest rank
  double tokens_per_s = 0;
  Spread of_first;          // a step's time over that of the comparison's first point, sample by sample
  PhaseTimes phase_ms{};    // mean over samples and ranks
  Index memory_bytes = 0;   // that the largest rank holds
  Index message_bytes = 0;  // handed to MPI by all ranks
  Index row_bytes = 0;      // rows that experts of another rank needed, a copy each
  double expert_load = 0;   // rows of the fullest expert over the mean
  double rank_load = 0;     // rows of the fullest rank over the mean
  double expert_gini = 0;   // of rows per expert: 0 even, towards 1 all on one
  double rank_gini = 0;     // of rows per rank
  double error = 0;         // against ep = 1, at most
  double tolerance = 0;
  double loss = 0;           // of a training step: of the last that was checked, whose weights were updated
  double dropped_share = 0;  // of the rows that tokens chose experts for: those that no expert computed
  double peak_gflops = 0;    // of all ranks at once, measured between the samples
  double peak_share = 0;     // of it that the step's arithmetic makes; median of samples
  Index samples = 0;
  std::string skipped;  // why it could not run here, and has no numbers; empty: it was measured
  std::string model;    // its sizes
  std::string cpu;
  Index processors = 0;
  Index nodes = 1;
  Index threads = 1;
  std::string mpi, blas, version, commit, measured_at;
};

/// `blank` with what a point says of itself.
EpRow row_of(const EpPoint& point, const EpRow& blank);

/// A step of a point, and what is measured and known beside it.
struct EpSample {
  WorldSample step;
  double peak_gflops = 0;  // of all ranks at once, right behind the step
};
/// What every step of a point does, over all ranks.
struct StepWork {
  double flops = 0;
  double rows = 0;  // tokens * top_k of every sparse layer
};
/// The measurements of a row from its samples; `first`: those of the first point, in whose turns they were
/// taken.
void summarise(const std::vector<EpSample>& samples, const std::vector<EpSample>& first, const StepWork& work,
               EpRow& row);

/// Two rows measured the same if their keys are.
std::string key_of(const EpRow& row);

Document document_of(const EpRow& row);
/// Throws IoError for a document that lacks a field.
EpRow row_from(const Document& document);
/// A heading, then a line a row.
std::string csv_of(const std::vector<EpRow>& rows);
/// The same to be read, without what a page says of all rows: the machine, and why kernels were chosen.
Table table_of(const std::vector<EpRow>& rows);

}  // namespace moeloom
