// Rows of a sweep as tests need them: every number different, and none of them round.
#pragma once

#include "measure/sweep/row.hpp"

namespace moeloom::testing {

inline SweepSettings layer_alone() {
  SweepSettings options;
  options.modes = {BenchMode::kLayer};
  options.scalings = {Scaling::kStrong};
  return options;
}

inline EpRow point_row(const EpPoint& point, double ms) {
  EpRow blank;
  blank.settings = "settings";
  blank.model = "a model";
  blank.cpu = "a CPU";
  blank.processors = 2;
  blank.mpi = "an MPI";
  blank.blas = "a BLAS";
  blank.version = "a version";
  blank.commit = "a commit";
  blank.measured_at = "2026-01-02T03:04:05Z";
  EpRow row = row_of(point, blank);
  row.gmm_applied = point.gmm != GmmRequest::kNever;
  row.gmm_reason = "because, \"so\"";
  row.dispatcher_used = "alltoall";
  row.dispatcher_reason = "one rank";
  row.dtype_used = row.dtype;
  row.step_ms = {ms * 0.99, ms, ms * 1.01};
  row.tokens_per_s = 1e3 * static_cast<double>(row.tokens) / ms;
  row.of_first = {0.81, 0.83, 0.85};
  for (std::size_t i = 0; i < kPhases; ++i)
    row.phase_ms[i] = ms / static_cast<double>(kPhases) + 0.1 * static_cast<double>(i);
  row.memory_bytes = static_cast<Index>(1e6 * ms);
  row.message_bytes = static_cast<Index>(3e5 * ms);
  row.row_bytes = static_cast<Index>(2e5 * ms);
  row.expert_load = 1.37;
  row.rank_load = 1.19;
  row.expert_gini = 0.213;
  row.rank_gini = 0.087;
  row.error = 1.23e-6;
  row.tolerance = 5e-5;
  row.loss = 5.4321;
  row.dropped_share = 0.0125;
  row.peak_gflops = 123.4;
  row.peak_share = 0.617;
  row.samples = 9;
  return row;
}

/// ms(point) of every point of a world of `ranks`.
template <typename Ms>
std::vector<EpRow> rows_of_world(SweepSettings options, Index ranks, Ms ms) {
  std::vector<EpRow> rows;
  for (const EpGroup& group : groups_of(options, 8, ranks))
    for (const EpPoint& point : group) rows.push_back(point_row(point, ms(point)));
  return rows;
}

}  // namespace moeloom::testing
