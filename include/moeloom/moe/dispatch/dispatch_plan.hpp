// Where every row goes: integer arithmetic on the chosen experts, without MPI and without a row.
//
// A slot is one of a token's K choices, number token * K + choice. Leaving, slots are ordered by expert and,
// within an expert, by token; experts are contiguous blocks of ranks, so that order is also by rank. Landing,
// rows are ordered by local expert, then source rank, then token, which is what grouped matmul reads.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"
#include "moeloom/moe/dispatch/chunk_plan.hpp"
#include "moeloom/moe/dispatch/crossing_plan.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace moeloom {

/// A row of the rank that holds a slot's expert.
struct Landing {
  Index rank = 0;
  Index row = 0;
};

struct DispatchPlan {
  Index tokens = 0;
  Index top_k = 0;
  Index ranks = 1;                       // of ep
  std::vector<Index> tokens_per_expert;  // [E], of this rank's tokens
  std::vector<Index> slot_order;         // [N]: slot that leaves at each place
  std::vector<Index> slot_place;         // [N]: place at which each slot leaves, slot_order's inverse
  std::vector<Index> sent_per_rank;      // [ep]
  std::vector<Index> received_per_rank;  // [ep]
  std::vector<Index> rows_per_source;    // [e, ep]: rows of local expert i from rank s
  std::vector<Index>
      landing_order;  // [R]: place among the received rows that lands at each row; empty if ranks = 1
  std::vector<Landing> landings;       // [N]: where each slot's row lands; filled by plan_landing alone
  std::vector<Index> tokens_per_rank;  // [ep]; filled by AllgatherDispatch alone, as is the next
  std::vector<Index> gathered_order;   // [R]: token among those of all ranks that lands at each row
  CrossingPlan crossing;               // between nodes; filled by plan_leaving and plan_arriving alone
  ChunkPlan chunks;                    // filled by OverlappedDispatch alone

  Index slots() const { return tokens * top_k; }
  Index rows() const;
  GroupedRows grouped_rows() const { return {rows_per_source, ranks}; }
};

/// The sending half: a stable counting sort, O(N + E). topk_idx [T, K], each in [0, num_experts).
/// Throws ShapeError for an id outside.
void plan_sending(std::span<const std::int32_t> topk_idx, Index top_k, Index num_experts, Index ranks,
                  DispatchPlan& plan);
/// The receiving half from received_counts [ep, e]: rows of local expert i that rank s sends here, at [s * e
/// + i].
void plan_receiving(std::span<const std::int64_t> received_counts, DispatchPlan& plan);

/// What a rank must know of all ranks' counts [ep, E] to tell where its rows land: sums and its own columns,
/// 2 E + ep e numbers.
struct LandingCounts {
  std::vector<std::int64_t> of_all;    // [E]: rows of each expert from all ranks
  std::vector<std::int64_t> before;    // [E]: of those, from the ranks before this one
  std::vector<std::int64_t> received;  // [ep, e], as plan_receiving takes them
};
/// From the counts [E] of each rank of `ranks`.
LandingCounts landing_counts(Index num_experts, Index ranks, Index rank,
                             const std::function<std::span<const std::int64_t>(Index source)>& counts_of);
/// The receiving half where nothing arrives before it lands: received_per_rank, rows_per_source and landings,
/// without landing_order. O(N + E + ep e). Needs the sending half of the same topk_idx; `rank` is this one.
void plan_landing(const LandingCounts& counts, std::span<const std::int32_t> topk_idx, Index rank,
                  DispatchPlan& plan);

}  // namespace moeloom
