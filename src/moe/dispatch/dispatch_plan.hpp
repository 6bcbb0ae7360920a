// Where every row goes: integer arithmetic on the chosen experts, without MPI and without a row.
//
// A slot is one of a token's K choices, number token * K + choice. N = T * K slots stand in the table; those
// with an expert leave, P <= N of them. Leaving, slots are ordered by expert and,
// within an expert, by token; experts are contiguous blocks of ranks, so that order is also by rank. Landing,
// rows are ordered by local expert, then source rank, then token, which is what grouped matmul reads.
#pragma once

#include "moe/dispatch/chunk_plan.hpp"
#include "moe/dispatch/crossing_chunks.hpp"
#include "moe/dispatch/crossing_plan.hpp"
#include "moe/dispatch/trip_shape.hpp"
#include "moe/rebalance/replica_plan.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"
#include "moeloom/moe/routing/chosen_experts.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <variant>
#include <vector>

namespace moeloom {

/// A row of the rank that holds a slot's expert.
struct Landing {
  Index rank = 0;  // -1: the slot has no expert
  Index row = 0;

  bool exists() const { return rank >= 0; }
};

/// HierarchicalDispatch's own part.
struct HierarchicalPlan {
  std::vector<Landing> landings;  // [N]
  CrossingPlan crossing;          // between nodes, where there are several
  CrossingChunks chunks;          // of it
};

/// What the sides of a layer's exchange know, whatever the way; `own` is what one way alone needs.
struct DispatchPlan {
  Index tokens = 0;
  Index top_k = 0;
  Index ranks = 1;                       // of ep
  std::vector<Index> tokens_per_expert;  // [E], of this rank's tokens, wherever they are computed
  std::vector<Index> slot_order;         // [P]: slot that leaves at each place
  std::vector<Index> slot_place;         // [N]: place at which each slot leaves; -1: it has no expert
  std::vector<Index> sent_per_rank;      // [ep]
  std::vector<Index> received_per_rank;  // [ep]
  std::vector<Index> rows_per_source;    // [e, ep]: rows of local expert i from rank s
  // [R]: place among the received rows that lands at each row. Empty if ranks = 1, or if rows are written
  // where they land.
  std::vector<Index> landing_order;
  ChunkPlan chunks;  // one, unless plan_chunks() cuts it
  // Where experts have replicas, rows_per_source is of the numbers that this rank serves: its own experts,
  // then its replicas.
  ReplicaPlan replicas;
  std::variant<std::monostate, HierarchicalPlan> own;

  static double bytes_of(const TripShape& trip) {
    const double of_places = trip.kind != DispatcherKind::kAlltoall
                                 ? array_bytes(trip.slots(), sizeof(Landing))
                             : trip.ranks > 1 ? array_bytes(trip.rows.most(), sizeof(Index))
                                              : 0.0;
    return array_bytes(trip.slots(), 2 * sizeof(Index)) +
           array_bytes(2 * trip.experts + 2 * trip.ranks, sizeof(Index)) + of_places;
  }
  /// N, of the table of choices.
  Index slots() const { return tokens * top_k; }
  /// P: slots that have an expert, one row each.
  Index places() const { return std::ssize(slot_order); }
  bool every_slot_leaves() const { return places() == slots(); }
  bool leaves(Index slot) const { return slot_place[at(slot)] >= 0; }
  Index rows() const;
  GroupedRows grouped_rows() const { return {rows_per_source, ranks}; }
};

/// A way's own part, to be filled: what it held before is kept, with its memory, if it was of the same way.
template <typename Part>
Part& make_own(DispatchPlan& plan) {
  if (Part* const held = std::get_if<Part>(&plan.own)) return *held;
  return plan.own.template emplace<Part>();
}
/// The same, as it was filled. Throws ShapeError with the name of the way if it is another's.
template <typename Part>
const Part& own_of(const DispatchPlan& plan, const char* way) {
  const Part* const held = std::get_if<Part>(&plan.own);
  if (held == nullptr) require(false, std::string("the ") + way + " dispatcher needs a plan of its own");
  return *held;
}

/// tokens_per_expert [num_experts] of topk_idx [N]. Throws ShapeError for an id outside.
std::vector<Index> count_choices(std::span<const std::int32_t> topk_idx, Index num_experts);
/// The sending half: a stable counting sort, O(N + E). topk_idx [T, K], each in [0, num_experts) or
/// kNoExpert. Throws ShapeError for an id outside.
void plan_sending(std::span<const std::int32_t> topk_idx, Index top_k, Index num_experts, Index ranks,
                  DispatchPlan& plan);
/// The receiving half, of one chunk, from received_counts [ep, e]: rows of local expert i that rank s sends
/// here, at [s * e
/// + i].
void plan_receiving(std::span<const std::int64_t> received_counts, DispatchPlan& plan);

/// What a rank must know of all ranks' counts [ep, E] to tell where its rows land, and what lands here:
/// E + ep e numbers.
struct LandingCounts {
  std::vector<Index> first_rows;       // [E]: where this rank's begin among the rows of an expert's holder
  std::vector<std::int64_t> received;  // [ep, e], as plan_receiving takes them
};
/// received [ep, e] -> [ep, e]: where the rows of each rank begin here, for each local expert.
std::vector<Index> first_rows_of_sources(std::span<const std::int64_t> received, Index ranks);
/// From the counts of each rank.
LandingCounts landing_counts(const SourceCounts& counts, Index rank);
/// From the counts [E] of each rank of `ranks`.
LandingCounts landing_counts(Index num_experts, Index ranks, Index rank,
                             const std::function<std::span<const std::int64_t>(Index source)>& counts_of);
/// The receiving half, of one chunk, where nothing arrives before it lands: `landings` [N] in place of
/// landing_order. O(N + E + ep e). Needs the sending half of the same topk_idx; `rank` is this one.
void plan_landing(const LandingCounts& counts, std::span<const std::int32_t> topk_idx, Index rank,
                  DispatchPlan& plan, std::vector<Landing>& landings);

}  // namespace moeloom
