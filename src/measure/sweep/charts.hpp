// Drawings of a sweep's rows.
#pragma once

#include "sweep/answers.hpp"

namespace moeloom {

/// "ep 2, gmm auto, alltoall (loop)", with what tells the rows of a view apart: what all share is left out.
std::string label_of(const EpRow& row, const EpView& view);

/// Of one view, by ep, a line for each choice of patch, dispatcher and dtype.
std::string tokens_chart(const EpView& view);
std::string time_chart(const EpView& view);
/// Of one view, a bar a row.
std::string phase_chart(const EpView& view);
std::string memory_chart(const EpView& view);
std::string bytes_chart(const EpView& view);
/// Rows of the fullest expert and of the fullest rank, over the mean.
std::string load_chart(const EpView& view);

/// Tokens/s of the fastest row of each ep by number of ranks; empty unless there are several numbers. The
/// views are of one mode, scaling and workload.
std::string scaling_chart(const std::vector<EpView>& views);
/// Step times of the fastest row of each workload and ep, beside the load of experts and ranks. The views are
/// of one mode, scaling and number of ranks; empty for less than two.
std::string workload_table(const std::vector<EpView>& views);

}  // namespace moeloom
