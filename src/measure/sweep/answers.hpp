// What a sweep's rows say in words: which ep is the fastest, and whether grouped matmul is worth it without
// expert parallelism. Every number in a sentence is one of the rows', or two of them divided.
#pragma once

#include "measure/sweep/row.hpp"

namespace moeloom {

/// Rows that may be compared with each other: one mode, scaling, workload, number of ranks, of their threads
/// and of tokens.
struct EpView {
  std::string mode, scaling, workload;
  Index ranks = 1;
  Index threads = 1;        // of a rank
  Index tokens = 0;         // over all ranks
  std::vector<EpRow> rows;  // by ep, gmm, dispatcher, dtype, as they were measured
  /// "Training step, strong scaling, 4 ranks"
  std::string title() const;
};
/// In the order in which the rows name them.
std::vector<EpView> views_of(const std::vector<EpRow>& rows);

/// Loop and GMM, without expert parallelism and with the most of it; of the first dispatcher that has all.
struct GmmSquare {
  EpRow loop, grouped;        // at ep = 1
  EpRow loop_ep, grouped_ep;  // at the largest ep
};
/// None if the view lacks one of the four, all in fp32.
std::optional<GmmSquare> gmm_square(const EpView& view);

/// Upstream's question, answered for this view.
std::string gmm_answer(const GmmSquare& square);
/// Which row of a view is the fastest, and how far ahead of ep = 1. Views have at least one row.
std::string fastest_answer(const EpView& view);
const EpRow& fastest_row(const EpView& view);

}  // namespace moeloom
