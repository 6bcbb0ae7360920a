// Rows that cross between nodes in chunks: a parcel a chunk and route, in place of one a route.
//
// A token still crosses once to a node: with the first chunk that has a copy of it, so that its copies for
// later chunks are in place before they are needed. What comes back as one row leaves with the last chunk
// that has a part of it. Both sides of a route know its copies and where the chunks of each rank begin, and
// find the same parcels.
#pragma once

#include "moe/dispatch/crossing_plan.hpp"
#include "moeloom/base/stretch.hpp"

#include <functional>

namespace moeloom {

/// Parcel after parcel, number chunk * routes + route.
struct CrossingRows {
  std::vector<Index> rows;              // their numbers among those of all routes
  std::vector<CrossingCounts> parcels;  // [chunks * routes]: rows as tokens or sums, and their copies
  std::vector<Index> copy_offsets;      // [rows + 1], by number: where a row's copies begin

  Stretch copies_of(Index row) const { return {copy_offsets[at(row)], copy_offsets[at(row + 1)]}; }
};

/// Of rows that travel whole there is one.
struct CrossingChunks {
  Index chunks = 1;
  // By out routes: tokens of this rank, and what comes back of them.
  CrossingRows leaving = {}, returning = {};
  // By in routes: tokens that it hands out, and what it sends back.
  CrossingRows arriving = {}, answering = {};
};

/// The chunk of a copy of a route.
using ChunkOfCopy = std::function<Index(Index route, const CrossingCopy& copy)>;

/// Tokens, each in the first chunk of its copies; copies lie route after route.
CrossingRows tokens_in_chunks(std::span<const CrossingCopy> copies, std::span<const CrossingCounts> routes,
                              Index chunks, const ChunkOfCopy& chunk_of);
/// Sums, each in the last chunk of its copies.
CrossingRows sums_in_chunks(std::span<const CrossingCopy> copies, std::span<const CrossingCounts> routes,
                            Index chunks, const ChunkOfCopy& chunk_of);

/// Of a plan whose crossing is there. first_rows [ep, chunks + 1]: where each rank's chunks begin, and its
/// rows end.
CrossingChunks plan_crossing_chunks(const NodeMap& nodes, const CrossingRoutes& routes, Index rank,
                                    const CrossingPlan& crossing, std::span<const std::int64_t> first_rows);

}  // namespace moeloom
