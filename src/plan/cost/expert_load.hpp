// What uneven routing burdens ranks and processors with, over even routing's.
#pragma once

#include "plan/cost/exchange_case.hpp"

#include <span>

namespace moeloom {

/// Rows of an expert: `fullest` times the mean for the first, the others share the rest evenly. The least
/// that a rank can be burdened with where no more is known than metrics.jsonl's expert_load.
std::vector<double> rows_with_fullest(Index num_experts, double fullest);
/// Rows of each rank of an ep row over the mean of its ranks.
std::vector<double> rank_loads(std::span<const double> expert_rows, Index ep);
/// max over processors of the sum of its ranks' loads, over that of even ones: the fullest rank's load where
/// each has processors of its own. Else rank r of a node shares a processor with r + P, r + 2 P ..., P =
/// processors / threads, as they are dealt at start; a waiting rank looks busy, so the kernel leaves it
/// there.
double busiest_load(const Job& job, std::span<const double> expert_rows);
/// Over the step's lists.
double mean_busiest_load(const Job& job);
/// Of the rank with the most rows in all lists together: what its memory holds, over even routing's.
double fullest_rank_load(const Job& job);

}  // namespace moeloom
