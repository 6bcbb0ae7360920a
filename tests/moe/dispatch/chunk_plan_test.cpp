#include "moe/dispatch/chunk_plan.hpp"

#include "moe/dispatch/dispatch_plan.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/comm/mesh.hpp"

#include <algorithm>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(ChunkPlan, CutsWhereTheRowsBeforeAChunkComeNearestToItsShare) {
  struct Case {
    std::vector<Index> rows_per_expert;
    Index chunks;
    std::vector<std::int64_t> cuts;
  };
  const std::vector<Case> cases = {
      {{5, 5, 5, 5}, 1, {0, 4}},
      {{5, 5, 5, 5}, 2, {0, 2, 4}},
      {{5, 5, 5, 5}, 4, {0, 1, 2, 3, 4}},
      {{5, 5, 5, 5}, 3, {0, 1, 3, 4}},  // 6.7 and 13.3 rows
      {{90, 1, 1, 8}, 2, {0, 1, 4}},    // the hot one alone
      {{1, 1, 8, 90}, 2, {0, 3, 4}},
      {{1, 90, 9}, 3, {0, 1, 2, 3}},  // 33 is nearer to 1 than to 91
      {{90}, 3, {0, 0, 1, 1}},        // half of it would be 30 and 60
      {{0, 0, 0}, 2, {0, 3, 3}},
      {{}, 2, {0, 0, 0}},
  };
  for (const Case& c : cases) EXPECT_EQ(cut_experts(c.rows_per_expert, c.chunks), c.cuts);
  EXPECT_THROW(cut_experts(std::vector<Index>{1}, 0), ShapeError);
}

/// The plans of all ranks for random choices, without MPI.
std::vector<DispatchPlan> plans_of(Index ranks, Index experts, Index top_k, Index chunks) {
  std::vector<DispatchPlan> plans(at(ranks));
  for (Index rank = 0; rank < ranks; ++rank)
    plan_sending(testing::random_choices(3 * rank, top_k, experts, 5 + static_cast<std::uint64_t>(rank)),
                 top_k, experts, ranks, plans[at(rank)]);
  std::vector<std::int64_t> cuts;
  for (Index rank = 0; rank < ranks; ++rank) {
    const ExpertRange held = experts_of(experts, ranks, rank);
    std::vector<std::int64_t> received;
    for (const DispatchPlan& source : plans)
      for (Index expert = held.begin; expert < held.begin + held.count; ++expert)
        received.push_back(source.tokens_per_expert[at(expert)]);
    plan_receiving(received, plans[at(rank)]);
    std::vector<Index> rows;
    for (Index expert = 0; expert < held.count; ++expert)
      rows.push_back(plans[at(rank)].grouped_rows().of_group(expert));
    std::ranges::copy(cut_experts(rows, chunks), std::back_inserter(cuts));
  }
  for (Index rank = 0; rank < ranks; ++rank) plan_chunks(cuts, rank, plans[at(rank)]);
  return plans;
}

/// What each rank sends another in a chunk is what that one expects, and all stretches together are all rows.
TEST(ChunkPlan, RanksAgreeOnEveryMessage) {
  for (const Index ranks : {1, 2, 3, 5})
    for (const Index experts : {5, 8, 16})
      for (const Index chunks : {1, 2, 3, 16}) {
        const auto plans = plans_of(ranks, experts, 3, chunks);
        for (Index me = 0; me < ranks; ++me) {
          const DispatchPlan& mine = plans[at(me)];
          Index left = 0, landed = 0;
          for (Index chunk = 0; chunk < chunks; ++chunk) {
            Index arrived = 0;
            for (Index other = 0; other < ranks; ++other) {
              const DispatchPlan& theirs = plans[at(other)];
              EXPECT_EQ(mine.chunks.leaving_for(other, chunk).size(),
                        theirs.chunks.arriving_from(me, chunk).size());
              left += mine.chunks.leaving_for(other, chunk).size();
              arrived += mine.chunks.arriving_from(other, chunk).size();
            }
            EXPECT_EQ(mine.chunks.rows_of(chunk).begin, landed);
            EXPECT_EQ(mine.chunks.rows_of(chunk).size(), arrived);
            landed += arrived;
          }
          EXPECT_EQ(left, mine.slots());
          EXPECT_EQ(landed, mine.rows());
          EXPECT_EQ(mine.chunks.experts_of(chunks - 1).end, experts_of(experts, ranks, me).count);
        }
      }
}

/// The rows of a chunk that come from a source are those that landing_order takes from its stretch.
TEST(ChunkPlan, AChunksRowsAreThoseThatArriveInItsStretches) {
  const auto plans = plans_of(3, 8, 3, 2);
  for (const DispatchPlan& plan : plans)
    for (Index chunk = 0; chunk < 2; ++chunk) {
      const Stretch rows = plan.chunks.rows_of(chunk);
      for (Index row = rows.begin; row < rows.end; ++row) {
        Index homes = 0;
        for (Index source = 0; source < 3; ++source) {
          const Stretch arriving = plan.chunks.arriving_from(source, chunk);
          const Index place = plan.landing_order[at(row)];
          homes += arriving.begin <= place && place < arriving.end ? 1 : 0;
        }
        EXPECT_EQ(homes, 1);
      }
    }
}

TEST(ChunkPlan, OneChunkIsTheWholePlan) {
  const auto one = plans_of(3, 8, 3, 1), many = plans_of(3, 8, 3, 3);
  for (std::size_t rank = 0; rank < one.size(); ++rank) {
    const ChunkPlan& cut = one[rank].chunks;
    DispatchPlan plan = many[rank];
    plan_whole(plan);
    EXPECT_EQ(plan.chunks.chunks, 1);
    EXPECT_EQ(plan.chunks.experts, cut.experts);
    EXPECT_EQ(plan.chunks.landing, cut.landing);
    EXPECT_EQ(plan.chunks.leaving, cut.leaving);
    EXPECT_EQ(plan.chunks.arriving, cut.arriving);
  }
}

TEST(ChunkPlan, RefusesCutsThatLeaveAnExpertOut) {
  auto plans = plans_of(2, 4, 2, 2);
  EXPECT_THROW(plan_chunks(std::vector<std::int64_t>{0, 1, 2, 0, 1, 1}, 0, plans[0]), ShapeError);
  EXPECT_THROW(plan_chunks(std::vector<std::int64_t>{0, 1, 2}, 0, plans[0]), ShapeError);
}

}  // namespace
}  // namespace moeloom
