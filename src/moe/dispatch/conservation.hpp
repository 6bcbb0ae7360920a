// Rows sent are rows received: what every rank checks of the counts that it has anyway.
//
// Beside its counts by expert a rank tells each receiver how many rows it will send there, a number that it
// made before and elsewhere. The receiver adds up the counts, so that a number that changed on the way, or in
// either memory, is found before rows move by it. A plan is checked again whenever rows travel by it, out and
// home.
#pragma once

#include "moe/dispatch/count_error.hpp"
#include "moe/dispatch/dispatch_plan.hpp"

namespace moeloom {

/// counted: the sum of what `source` has said by expert for the experts of `target`, both ranks of ep; told:
/// how many rows it says it sends there. Throws CountError unless they are the same.
void check_told(Index source, Index target, std::int64_t counted, std::int64_t told);

/// The same of all that `source` sends, where every rank sees all of its counts.
void check_told_in_all(Index source, std::span<const std::int64_t> counts, std::int64_t told);

/// Throws CountError unless the rows that leave are those for each rank, and the rows that land those from
/// each. `rank`: this one, of ep.
void check_conserved(const DispatchPlan& plan, Index rank);

}  // namespace moeloom
