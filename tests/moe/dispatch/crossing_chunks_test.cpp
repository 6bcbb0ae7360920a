#include "moe/dispatch/crossing_chunks.hpp"

#include "moeloom/base/errors.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

CrossingCopy copy(std::int32_t row, bool new_token, bool new_sum) {
  return {row, 0, static_cast<std::uint8_t>(new_token), static_cast<std::uint8_t>(new_sum)};
}

/// Two routes of three chunks; a copy's chunk is its row.
const std::vector<CrossingCopy> kCopies = {
    // Route 0: a token of chunks 2, 0, 1, whose first two copies are one sum; and one of chunk 1.
    copy(2, true, true), copy(0, false, false), copy(1, false, true), copy(1, true, true),
    // Route 1: a token of chunks 2 and 2.
    copy(2, true, true), copy(2, false, true)};
const std::vector<CrossingCounts> kRoutes = {{2, 4, 3}, {1, 2, 2}};

Index row_as_chunk(Index /*route*/, const CrossingCopy& copy) {
  return copy.row;
}

std::vector<Index> counts(const CrossingRows& rows, Index CrossingCounts::*count) {
  std::vector<Index> found;
  for (const CrossingCounts& parcel : rows.parcels) found.push_back(parcel.*count);
  return found;
}

TEST(CrossingChunks, ATokenTravelsWithTheFirstChunkThatNeedsIt) {
  const CrossingRows tokens = tokens_in_chunks(kCopies, kRoutes, 3, row_as_chunk);
  EXPECT_EQ(tokens.rows, (std::vector<Index>{0, 1, 2}));
  EXPECT_EQ(counts(tokens, &CrossingCounts::tokens), (std::vector<Index>{1, 0, 1, 0, 0, 1}));
  EXPECT_EQ(counts(tokens, &CrossingCounts::copies), (std::vector<Index>{3, 0, 1, 0, 0, 2}));
  EXPECT_EQ(tokens.copy_offsets, (std::vector<Index>{0, 3, 4, 6}));
}

TEST(CrossingChunks, ASumLeavesWithTheLastChunkThatHasAPartOfIt) {
  const CrossingRows sums = sums_in_chunks(kCopies, kRoutes, 3, row_as_chunk);
  EXPECT_EQ(sums.rows, (std::vector<Index>{1, 2, 0, 3, 4}));  // of one parcel in the order of their numbers
  EXPECT_EQ(counts(sums, &CrossingCounts::sums), (std::vector<Index>{0, 0, 2, 0, 1, 2}));
  EXPECT_EQ(counts(sums, &CrossingCounts::copies), (std::vector<Index>{0, 0, 2, 0, 2, 2}));
  EXPECT_EQ(sums.copy_offsets, (std::vector<Index>{0, 2, 3, 4, 5, 6}));
}

TEST(CrossingChunks, NothingCrossesWhereThereIsNoRoute) {
  const CrossingRows none = tokens_in_chunks({}, {}, 2, row_as_chunk);
  EXPECT_TRUE(none.rows.empty());
  EXPECT_TRUE(none.parcels.empty());
  const CrossingRows empty = sums_in_chunks({}, std::vector<CrossingCounts>(1), 2, row_as_chunk);
  EXPECT_EQ(counts(empty, &CrossingCounts::sums), (std::vector<Index>{0, 0}));
}

/// Ranks 0 and 1 are a node, rank 2 another one, and chunks of every rank begin elsewhere.
TEST(CrossingChunks, BothSidesFindTheSameParcels) {
  const NodeMap nodes = node_map_of(std::vector<std::int64_t>{0, 0, 1});
  const std::vector<std::int64_t> first_rows = {0,
                                                1,
                                                4,
                                                /*rank 1, whose second chunk is empty*/ 0,
                                                2,
                                                2,
                                                /*rank 2*/ 0,
                                                3,
                                                5};
  const auto on = [](std::int32_t row, std::int16_t member) { return CrossingCopy{row, member, 1, 1}; };
  CrossingPlan leaving, arriving;  // rank 2 sends to node 0, of which rank 0 hands out
  leaving.leaving = arriving.arriving = {{5, 5, 5}};
  leaving.leaving_copies = arriving.copies = {on(0, 0), on(1, 0), on(3, 0), on(0, 1), on(1, 1)};
  const CrossingChunks there = plan_crossing_chunks(nodes, crossing_routes(nodes, 2), 2, leaving, first_rows);
  const CrossingChunks here = plan_crossing_chunks(nodes, crossing_routes(nodes, 0), 0, arriving, first_rows);
  EXPECT_EQ(there.chunks, 2);
  EXPECT_EQ(there.leaving.rows, (std::vector<Index>{0, 3, 4, 1, 2}));
  EXPECT_EQ(here.arriving.rows, there.leaving.rows);
  EXPECT_EQ(here.answering.rows, there.returning.rows);
  EXPECT_EQ(counts(here.arriving, &CrossingCounts::tokens), (std::vector<Index>{3, 2}));
  EXPECT_EQ(counts(there.returning, &CrossingCounts::sums), (std::vector<Index>{3, 2}));
  EXPECT_THROW(plan_crossing_chunks(nodes, crossing_routes(nodes, 2), 2, leaving, {}), ShapeError);
}

}  // namespace
}  // namespace moeloom
