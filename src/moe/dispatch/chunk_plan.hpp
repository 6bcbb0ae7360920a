// Rows in chunks: which experts a rank computes together while the rows of the next ones travel.
//
// Chunks are made of whole experts, so that an expert's rows, and with them the sums of its gradient, are
// never split: the bits do not depend on the chunks. Every rank cuts its own experts into as many chunks,
// with about as many rows each, and tells the others where, because rows leave chunk by chunk. Slots leave
// ordered by expert, arrive ordered by source and expert, and land ordered by expert, so a chunk is a stretch
// of each. Where rows are moved whole there is one chunk.
#pragma once

#include "moeloom/base/stretch.hpp"
#include "moeloom/job/mesh_shape.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace moeloom {

struct DispatchPlan;

struct ChunkPlan {
  Index chunks = 1;
  std::vector<Index> experts;   // [chunks + 1]: the first resident expert of each, and how many there are
  std::vector<Index> landing;   // [chunks + 1]: its first row
  std::vector<Index> leaving;   // [ep, chunks + 1]: its first place among the slots that leave
  std::vector<Index> arriving;  // [ep, chunks + 1]: likewise among the rows as they arrive

  Stretch experts_of(Index chunk) const { return at_chunk(experts, 0, chunk); }
  Stretch rows_of(Index chunk) const { return at_chunk(landing, 0, chunk); }
  Stretch leaving_for(Index rank, Index chunk) const { return at_chunk(leaving, rank, chunk); }
  Stretch arriving_from(Index rank, Index chunk) const { return at_chunk(arriving, rank, chunk); }
  Stretch leaving_for(Index rank) const { return whole(leaving, rank); }
  Stretch arriving_from(Index rank) const { return whole(arriving, rank); }

 private:
  Stretch at_chunk(const std::vector<Index>& first, Index rank, Index chunk) const {
    const Index i = rank * (chunks + 1) + chunk;
    return {first[at(i)], first[at(i + 1)]};
  }
  Stretch whole(const std::vector<Index>& first, Index rank) const {
    return {first[at(rank * (chunks + 1))], first[at(rank * (chunks + 1) + chunks)]};
  }
};

/// Of rows_per_expert, the first expert of each chunk [chunks + 1]: a chunk begins where the rows before it
/// come nearest to its share. Chunks beyond the experts are empty.
std::vector<std::int64_t> cut_experts(std::span<const Index> rows_per_expert, Index chunks);

/// Fills plan.chunks with one chunk of everything, from the rest of the plan.
void plan_whole(DispatchPlan& plan);
/// Fills plan.chunks, from the cuts of all ranks [ep, chunks + 1] and the rest of the plan. `rank` is this
/// one.
void plan_chunks(std::span<const std::int64_t> cuts, Index rank, DispatchPlan& plan);

}  // namespace moeloom
