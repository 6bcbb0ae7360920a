// Rows to experts of other ranks and back by moeloom.h, against a loop over what every rank has.
#include "moeloom/comm/communicator.hpp"
#include "moeloom/job/mesh_shape.hpp"
#include "moeloom/moe/routing/chosen_experts.hpp"

#include <string>

#include "c_arrays.hpp"

namespace moeloom {
namespace {

using namespace testing;

constexpr Index kExperts = 7, kHidden = 5, kTopK = 3;

/// What a rank brings, a function of its number and of the routing's.
struct Brought {
  Brought(int rank, Index routing, std::int32_t dtype)
      : tokens(routing == 2                ? 0
               : (rank + routing) % 3 == 1 ? 0
                                           : 6 + 2 * rank),
        x(random_matrix(tokens, kHidden, at(10 + rank)), Lie{dtype}),
        scalars(random_matrix(tokens, kTopK, at(30 + rank))) {
    const auto chosen =
        random_choices(tokens, kTopK, kExperts, at(40 + rank + 5 * routing), routing == 1 ? 0 : -1);
    ids.assign(chosen.begin(), chosen.end());
    if (!ids.empty()) ids[1] = -1, ids[ids.size() - 1] = kExperts;  // none, in both spellings
  }
  Index tokens;
  std::vector<Index> ids;
  Array x, scalars;
};

/// One row a slot, by a loop.
struct Landed {
  Landed(int ranks, int rank, Index routing, std::int32_t dtype) {
    const ExpertRange held = experts_of(kExperts, ranks, rank);
    for (Index expert = held.begin; expert < held.begin + held.count; ++expert) {
      counts.push_back(0);
      for (int source = 0; source < ranks; ++source) {
        const Brought of(source, routing, dtype);
        const Matrix x = of.x.numbers(), scalars_of = of.scalars.numbers();
        for (Index slot = 0; slot < std::ssize(of.ids); ++slot) {
          if (of.ids[at(slot)] != expert) continue;
          rows.insert(rows.end(), x.view().row(slot / kTopK), x.view().row(slot / kTopK) + kHidden);
          scalars.push_back(scalars_of.view().data[slot]);
          ++counts.back();
        }
      }
    }
  }
  std::vector<float> rows, scalars;
  std::vector<Index> counts;
};

std::vector<float> floats(const Array& array) {
  const Matrix numbers = array.numbers();
  return {numbers.view().flat().begin(), numbers.view().flat().end()};
}

/// A trip out with its numbers, home with rows that are weighted, out again.
void make(ml_experts* experts, ml_trip* trip, int ranks, int rank, Index routing, std::int32_t dtype) {
  const Brought mine(rank, routing, dtype);
  const Landed expected(ranks, rank, routing, dtype);
  const Index count = ml_trip_rows(trip);
  const Array rows({count, kHidden}, {dtype}), row_scalars({count}), y({mine.tokens, kHidden}),
      slot_scalars({mine.tokens, kTopK}), counts({std::ssize(expected.counts)}, {ML_I64});
  EXPECT_OK(ml_trip_counts(trip, counts));
  EXPECT_EQ(counts.integers(), expected.counts);
  for (int turn = 0; turn < 2; ++turn) {
    EXPECT_OK(ml_dispatch(experts, trip, mine.x, mine.scalars, rows, row_scalars));
    EXPECT_EQ(floats(rows), expected.rows);
    EXPECT_EQ(floats(row_scalars), expected.scalars);
    EXPECT_OK(ml_combine(experts, trip, rows, row_scalars, row_scalars, y, slot_scalars));
    const Matrix x = mine.x.numbers(), weights = mine.scalars.numbers(), got = y.numbers();
    for (Index t = 0; t < mine.tokens; ++t)
      for (Index j = 0; j < kHidden; ++j) {
        float sum = 0;
        for (Index k = 0; k < kTopK; ++k) {
          const Index id = mine.ids[at(t * kTopK + k)];
          const float product = weights.view()(t, k) * x.view()(t, j);
          if (id >= 0 && id < kExperts) sum += product;
        }
        EXPECT_NEAR(got.view()(t, j), sum, 1e-6f);
      }
    for (Index slot = 0; slot < std::ssize(mine.ids); ++slot) {
      const Index id = mine.ids[at(slot)];
      EXPECT_EQ(slot_scalars.numbers().view().data[slot],
                id >= 0 && id < kExperts ? weights.view().data[slot] : 0);
    }
  }
}

ml_experts* opened(ml_group* group, const char* dispatcher = nullptr, Index chunks = 0) {
  ml_experts_settings settings{};
  settings.size = sizeof settings, settings.num_experts = kExperts, settings.layer = 3;
  settings.dispatcher = dispatcher, settings.chunks = chunks;
  ml_experts* experts = nullptr;
  EXPECT_OK(ml_experts_open(group, &settings, &experts));
  return experts;
}

TEST(CRanksDispatch, RowsComeToTheirExpertsAndHomeByEveryDispatcher) {
  ml_group* group = nullptr;
  EXPECT_OK(ml_group_world(&group));
  const int ranks = static_cast<int>(ml_group_size(group)), rank = static_cast<int>(ml_group_rank(group));
  for (const char* kind : {"alltoall", "shared", "hierarchical"})
    for (const Index chunks : {0, 2}) {
      SCOPED_TRACE(std::string(kind) + " in " + std::to_string(chunks));
      ml_experts* const experts = opened(group, kind, chunks);
      ml_trip* trips[3] = {};
      for (Index routing = 0; routing < 3; ++routing) {
        const Brought mine(rank, routing, ML_F32);
        EXPECT_OK(
            ml_dispatch_plan(experts, Array::integers(mine.ids, {mine.tokens, kTopK}), &trips[routing]));
      }
      for (const Index routing : {2, 0, 1, 0})
        make(experts, trips[routing], ranks, rank, routing, routing == 0 ? ML_BF16 : ML_F32);
      for (ml_trip* trip : trips) ml_trip_free(trip);
      ml_experts_close(experts);
    }
  ml_group_close(group);
}

/// Of all dispatchers one order of sums.
TEST(CRanksDispatch, SumsHaveTheSameBitsByEveryDispatcher) {
  ml_group* group = nullptr;
  EXPECT_OK(ml_group_world(&group));
  const Brought mine(static_cast<int>(ml_group_rank(group)), 0, ML_F32);
  std::vector<std::vector<float>> sums;
  for (const char* kind : {"alltoall", "shared", "hierarchical"}) {
    ml_experts* const experts = opened(group, kind);
    ml_trip* trip = nullptr;
    EXPECT_OK(ml_dispatch_plan(experts, Array::integers(mine.ids, {mine.tokens, kTopK}), &trip));
    const Array rows(random_matrix(ml_trip_rows(trip), 33, at(50 + ml_group_rank(group)))),
        y({mine.tokens, 33});
    EXPECT_OK(ml_combine(experts, trip, rows, nullptr, nullptr, y, nullptr));
    sums.push_back(floats(y));
    ml_trip_free(trip);
    ml_experts_close(experts);
  }
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[2]);
  ml_group_close(group);
}

TEST(CRanksDispatch, WhatDiffersFromRankToRankIsToldToAll) {
  ml_group* group = nullptr;
  EXPECT_OK(ml_group_world(&group));
  const bool is_last = ml_group_rank(group) == ml_group_size(group) - 1;
  ml_experts* const experts = opened(group);
  ml_trip* trip = nullptr;
  EXPECT_OK(ml_dispatch_plan(experts, Array::integers({0, 1, 2}, {1, 3}), &trip));
  const Index count = ml_trip_rows(trip);
  const Index tokens = is_last ? 2 : 1;
  EXPECT_STATUS(ml_dispatch(experts, trip, Array({tokens, 4}), nullptr, Array({count, 4}), nullptr), ML_SHAPE,
                "x is [2, 4] and must be [1, any]");
  EXPECT_OK(ml_dispatch(experts, trip, Array({1, 4}), nullptr, Array({count, 4}), nullptr));
  ml_trip_free(trip);
  ml_experts_close(experts);
  ml_group_close(group);
}

/// After each the group refuses, so that each has one of its own.
class Differing : public ::testing::TestWithParam<const char*> {};

TEST_P(Differing, AreRefused) {
  const std::string what = GetParam();
  ml_group* group = nullptr;
  EXPECT_OK(ml_group_world(&group));
  if (ml_group_size(group) > 1) {
    const bool is_last = ml_group_rank(group) == ml_group_size(group) - 1;
    ml_experts* const experts = opened(group);
    ml_trip* trips[2] = {};
    for (ml_trip*& trip : trips)
      EXPECT_OK(ml_dispatch_plan(experts, Array::integers({0, 1, 2}, {1, 3}), &trip));
    const Index width = what == ", D = 6" && is_last ? 6 : 5;
    ml_trip* const trip = trips[what == " of plan 2" && is_last ? 1 : 0];
    const Index rows = ml_trip_rows(trip);
    const Array scalars({1, 3}), numbers({rows});
    const bool has = what == ", with scalars" && is_last;
    EXPECT_STATUS(ml_dispatch(experts, trip, Array({1, width}), has ? &scalars.get() : nullptr,
                              Array({rows, width}), has ? &numbers.get() : nullptr),
                  ML_MPI, what);
    for (ml_trip* each : trips) ml_trip_free(each);
    ml_experts_close(experts);
  }
  ml_group_close(group);
}

INSTANTIATE_TEST_SUITE_P(Plans, Differing, ::testing::Values(" of plan 2", ", D = 6", ", with scalars"));

/// How rows travel is one decision, by the most of any rank.
TEST(CRanksDispatch, RanksMayChooseOtherNumbersOfExperts) {
  ml_group* group = nullptr;
  EXPECT_OK(ml_group_world(&group));
  const bool is_first = ml_group_rank(group) == 0;
  ml_experts* const experts = opened(group);
  ml_trip* trip = nullptr;
  const Index top_k = is_first ? 7 : 1, tokens = 64;
  std::vector<Index> ids;
  for (Index slot = 0; slot < tokens * top_k; ++slot) ids.push_back(slot % top_k);
  EXPECT_OK(ml_dispatch_plan(experts, Array::integers(ids, {tokens, top_k}), &trip));
  const Index rows = ml_trip_rows(trip);
  EXPECT_OK(ml_dispatch(experts, trip, Array({tokens, 3}), nullptr, Array({rows, 3}), nullptr));
  ml_trip_free(trip);
  ml_experts_close(experts);
  ml_group_close(group);
}

}  // namespace
}  // namespace moeloom
