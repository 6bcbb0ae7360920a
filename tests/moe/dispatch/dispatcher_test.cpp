#include "moe/dispatch/dispatcher.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/comm/mesh.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "dispatch/dropped_slots.hpp"
#include "dispatch/trips.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr Index kHidden = 5;

struct Case {
  const char* name;
  std::vector<Index> tokens_by_rank;  // repeated when there are more ranks
  Index top_k, experts, favourite;
  testing::Drops drops = testing::Drops::kNone;
};

const std::vector<Case> kCases = {{"even", {8}, 2, 8, -1},
                                  {"uneven", {13, 1, 0, 6}, 3, 8, -1},
                                  {"no tokens anywhere", {0}, 2, 8, -1},
                                  {"one rank alone", {9, 0}, 2, 8, -1},
                                  {"one hot expert", {10}, 1, 8, 7},
                                  {"one hot rank", {10, 70}, 2, 16, 0},
                                  {"every expert", {4, 3}, 8, 8, -1},
                                  {"experts do not divide", {6, 2}, 2, 7, -1},
                                  {"many tokens", {300, 20, 100}, 2, 10, -1},
                                  {"some dropped", {13, 1, 0, 6}, 3, 8, -1, testing::Drops::kSome},
                                  {"most dropped", {70, 10}, 4, 7, -1, testing::Drops::kMost},
                                  {"tokens dropped", {9, 4}, 2, 8, -1, testing::Drops::kEverySecondToken},
                                  {"openings dropped", {9, 4}, 4, 8, -1, testing::Drops::kFirstOfEachToken},
                                  {"an expert dropped", {10, 70}, 2, 8, 5, testing::Drops::kExpert},
                                  {"a rank dropped", {8}, 2, 8, -1, testing::Drops::kRank}};

Index tokens_of(const Case& c, int rank) {
  return c.tokens_by_rank[static_cast<std::size_t>(rank) % c.tokens_by_rank.size()];
}

std::vector<std::int32_t> choices_of(const Case& c, int rank) {
  const auto seed = 70 + static_cast<std::uint64_t>(rank);
  return testing::dropped(testing::random_choices(tokens_of(c, rank), c.top_k, c.experts, seed, c.favourite),
                          c.top_k, c.drops, static_cast<std::int32_t>(c.favourite),
                          rank == Communicator::world().size() - 1, seed);
}

Matrix tokens_matrix(const Case& c, int rank) {
  return testing::random_matrix(tokens_of(c, rank), kHidden, 90 + static_cast<std::uint64_t>(rank));
}

/// A way to move rows, on so many pretended nodes.
struct Way {
  const char* name;
  DispatcherKind kind;
  Index nodes = 0;
};
const std::vector<Way> kWays = {{"alltoall", DispatcherKind::kAlltoall},
                                {"shared", DispatcherKind::kShared},
                                {"hierarchical", DispatcherKind::kHierarchical},
                                {"hierarchical on 2 nodes", DispatcherKind::kHierarchical, 2},
                                {"hierarchical on 3 nodes", DispatcherKind::kHierarchical, 3},
                                {"hierarchical on 4 nodes", DispatcherKind::kHierarchical, 4}};

class DispatcherOnEveryRank : public ::testing::TestWithParam<std::tuple<Way, Case>> {
 protected:
  Dispatcher dispatcher(Index experts) const {
    const Way& way = std::get<0>(GetParam());
    return Dispatcher(ep_, experts, open_dispatcher(way.kind, ep_, experts, {.pretended_nodes = way.nodes}));
  }
  const Communicator ep_ = Communicator::world();
};

TEST_P(DispatcherOnEveryRank, RowsArriveGroupedByExpertSourceAndToken) {
  const Case& c = std::get<1>(GetParam());
  Dispatcher dispatcher = this->dispatcher(c.experts);
  EXPECT_EQ(dispatcher.kind(), std::get<0>(GetParam()).kind);
  DispatchPlan plan;
  dispatcher.plan(choices_of(c, ep_.rank()), c.top_k, plan);
  RowBuffer rows;
  testing::bring_rows(dispatcher, plan, tokens_matrix(c, ep_.rank()), rows);

  // The oracle: every rank's choices and tokens are functions of its number.
  const ExpertRange held = experts_of(c.experts, ep_.size(), ep_.rank());
  Index row = 0;
  for (Index expert = held.begin; expert < held.begin + held.count; ++expert) {
    for (int source = 0; source < ep_.size(); ++source) {
      const auto chosen = choices_of(c, source);
      const Matrix tokens = tokens_matrix(c, source);
      Index here = 0;
      for (std::size_t slot = 0; slot < chosen.size(); ++slot) {
        if (chosen[slot] != expert) continue;
        ASSERT_LT(row, rows.rows());
        for (Index j = 0; j < kHidden; ++j)
          EXPECT_EQ(rows.view()(row, j), tokens.view()(static_cast<Index>(slot) / c.top_k, j));
        ++row, ++here;
      }
      EXPECT_EQ(plan.grouped_rows().of_source(expert - held.begin, source), here);
    }
  }
  EXPECT_EQ(row, rows.rows());
}

TEST_P(DispatcherOnEveryRank, CombineAddsATokensRowsInSlotOrder) {
  const Case& c = std::get<1>(GetParam());
  Dispatcher dispatcher = this->dispatcher(c.experts);
  DispatchPlan plan;
  const auto chosen = choices_of(c, ep_.rank());
  dispatcher.plan(chosen, c.top_k, plan);
  const Matrix tokens = tokens_matrix(c, ep_.rank());
  RowBuffer rows, results;
  Matrix sums(tokens.rows(), kHidden);
  fill(sums, 7);  // of memory that was used before
  for (const Write mode : {Write::kReplace, Write::kAdd})
    testing::travel(dispatcher, {.plan = plan,
                                 .tokens = tokens,
                                 .rows = rows,
                                 .scalars_out = std::nullopt,
                                 .results = results,
                                 .sums = sums,
                                 .mode = mode});
  for (Index t = 0; t < tokens.rows(); ++t)
    for (Index j = 0; j < kHidden; ++j) {
      float expected = 0;
      for (Index k = 0; k < c.top_k; ++k)
        if (chosen[at(t * c.top_k + k)] != kNoExpert) expected += tokens.view()(t, j);
      EXPECT_EQ(sums.view()(t, j), expected + expected);
    }
}

TEST_P(DispatcherOnEveryRank, ScalarsGoOutAndComeBackToTheirSlots) {
  const Case& c = std::get<1>(GetParam());
  Dispatcher dispatcher = this->dispatcher(c.experts);
  DispatchPlan plan;
  const auto chosen = choices_of(c, ep_.rank());
  dispatcher.plan(chosen, c.top_k, plan);
  std::vector<float> slots(static_cast<std::size_t>(plan.slots()));
  for (std::size_t i = 0; i < slots.size(); ++i)
    slots[i] = static_cast<float>(i) + 1000.0f * static_cast<float>(ep_.rank());
  std::vector<float> rows;
  const Matrix tokens = tokens_matrix(c, ep_.rank());
  Matrix sums(tokens.rows(), kHidden);
  RowBuffer landed, results;
  for (int turn = 0; turn < 3; ++turn) {  // trip after trip, each with other numbers
    std::vector<float> back;
    rows.resize(at(plan.rows()));  // before the trip says where they are
    const RoundTrip trip{.plan = plan,
                         .tokens = tokens,
                         .rows = landed,
                         .scalars_out = ScalarsOut{slots, rows},
                         .results = results,
                         .sums = sums,
                         .scalars_back = ScalarsBack{rows, back}};
    testing::travel(dispatcher, trip);
    EXPECT_EQ(static_cast<Index>(rows.size()), plan.rows());
    ASSERT_EQ(std::ssize(back), plan.slots());
    for (std::size_t i = 0; i < slots.size(); ++i)
      EXPECT_EQ(back[i], chosen[i] == kNoExpert ? 0 : slots[i]) << i;
    for (float& number : slots) number += 0.5f;
  }
}

TEST_P(DispatcherOnEveryRank, OutAndHomeAreTripsOfTheirOwnWithinOnePlan) {
  const auto& [way, c] = GetParam();
  const auto chosen = choices_of(c, ep_.rank());
  const Matrix tokens = tokens_matrix(c, ep_.rank());
  constexpr Index kWidth = kHidden + 4;  // of other rows than those that went out
  DispatcherSettings settings = open_dispatcher(way.kind, ep_, c.experts, {.pretended_nodes = way.nodes});
  settings.chunks = c.top_k == 3 ? 3 : 0;
  Dispatcher dispatcher(ep_, c.experts, settings);
  DispatchPlan plan;
  dispatcher.plan(chosen, c.top_k, plan);
  std::vector<float> slots(at(plan.slots())), numbers, back;
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<float>(100 * ep_.rank()) + i;
  RowBuffer expected, rows, results;
  testing::bring_rows(dispatcher, plan, tokens, expected);
  for (int turn = 0; turn < 2; ++turn) {
    const std::int64_t before = dispatcher.traffic().row_bytes;
    const RoundTrip out{.plan = plan,
                        .tokens = tokens,
                        .rows = rows,
                        .scalars_out = ScalarsOut{slots, numbers},
                        .results = results,
                        .sums = {},
                        .legs = Legs::kOut};
    dispatcher.begin(out);
    dispatcher.await_all(out);
    dispatcher.finish(out);
    ASSERT_EQ(rows.rows(), expected.rows());
    for (Index i = 0; i < expected.view().size(); ++i)
      ASSERT_EQ(rows.view().data[i], expected.view().data[i]);
    const Matrix landed = Matrix::copy_of(rows.view());

    Matrix sums(tokens.rows(), kWidth);
    fill(sums, 7);
    const RoundTrip home{.plan = plan,
                         .tokens = {},
                         .rows = rows,
                         .scalars_out = std::nullopt,
                         .results = results,
                         .sums = sums,
                         .scalars_back = ScalarsBack{numbers, back},
                         .legs = Legs::kHome};
    dispatcher.begin(home);
    for (Index row = 0; row < landed.rows(); ++row)
      for (Index j = 0; j < kWidth; ++j) results.view()(row, j) = landed.view()(row, j % kHidden);
    dispatcher.send_all_back(home);
    dispatcher.finish(home);
    for (Index t = 0; t < tokens.rows(); ++t)
      for (Index j = 0; j < kWidth; ++j) {
        float sum = 0;
        for (Index k = 0; k < c.top_k; ++k)
          if (chosen[at(t * c.top_k + k)] != kNoExpert) sum += tokens.view()(t, j % kHidden);
        EXPECT_EQ(sums.view()(t, j), sum);
      }
    for (std::size_t i = 0; i < slots.size(); ++i)
      EXPECT_EQ(back[i], chosen[i] == kNoExpert ? 0 : slots[i]) << i;
    const Index own = plan.sent_per_rank[at(ep_.rank())];
    EXPECT_EQ(dispatcher.traffic().row_bytes - before,
              4 * ((plan.places() - own) * kHidden + (plan.rows() - own) * kWidth));
  }
}

/// Whatever the wire rounds of rows.
TEST(Dispatcher, NumbersBesideRowsKeepTheirBits) {
  const Communicator ep = Communicator::world();
  for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kHierarchical})
    for (const Index chunks : {0, 3}) {
      SCOPED_TRACE(std::string(name_of(kind)) + " in " + std::to_string(chunks));
      DispatcherSettings settings =
          open_dispatcher(kind, ep, 8, {.dtype = WireDType::kBf16, .pretended_nodes = 2});
      settings.chunks = chunks;
      Dispatcher dispatcher(ep, 8, settings);
      DispatchPlan plan;
      dispatcher.plan(testing::random_choices(9, 2, 8, static_cast<std::uint64_t>(ep.rank())), 2, plan);
      const Matrix tokens(9, kHidden);
      Matrix sums(9, kHidden);
      std::vector<float> slots(at(plan.slots()), 1 + 0x1p-23f), rows(at(plan.rows())), back;
      RowBuffer landed, results;
      testing::travel(dispatcher, {.plan = plan,
                                   .tokens = tokens,
                                   .rows = landed,
                                   .scalars_out = ScalarsOut{slots, rows},
                                   .results = results,
                                   .sums = sums,
                                   .scalars_back = ScalarsBack{rows, back}});
      for (const float number : rows) EXPECT_EQ(number, 1 + 0x1p-23f);
      EXPECT_EQ(back, slots);
    }
}

TEST(Dispatcher, ATripEndsWhenEveryChunkWasSentBackOnceAndInOrder) {
  const Communicator alone = Communicator::self();
  Dispatcher dispatcher(alone, 4, {.chunks = 2});
  DispatchPlan plan;
  dispatcher.plan(std::vector<std::int32_t>{0, 1, 2, 3}, 2, plan);
  const Matrix tokens(2, kHidden);
  Matrix sums(2, kHidden);
  RowBuffer rows, results;
  const RoundTrip trip{.plan = plan,
                       .tokens = tokens,
                       .rows = rows,
                       .scalars_out = std::nullopt,
                       .results = results,
                       .sums = sums};
  dispatcher.begin(trip);
  EXPECT_THROW(dispatcher.send_back(trip, 1), ShapeError);
  dispatcher.begin(trip);
  dispatcher.send_back(trip, 0);
  EXPECT_THROW(dispatcher.finish(trip), ShapeError);
  dispatcher.send_back(trip, 1);
  EXPECT_NO_THROW(dispatcher.finish(trip));
}

INSTANTIATE_TEST_SUITE_P(AllShapes, DispatcherOnEveryRank,
                         ::testing::Combine(::testing::ValuesIn(kWays), ::testing::ValuesIn(kCases)),
                         [](const auto& info) {
                           std::string name =
                               std::string(std::get<0>(info.param).name) + "_" + std::get<1>(info.param).name;
                           std::ranges::replace(name, ' ', '_');
                           return name;
                         });

/// Tokens out and, as they landed, back: their sums over top_k experts.
Matrix there_and_back(const Communicator& ep, DispatcherKind kind, const WireSettings& wire, Index top_k,
                      ConstMatrixView tokens, testing::Drops drops = testing::Drops::kNone) {
  constexpr Index kExperts = 16;
  Dispatcher dispatcher(ep, kExperts, open_dispatcher(kind, ep, kExperts, wire));
  DispatchPlan plan;
  dispatcher.plan(
      testing::dropped(testing::random_choices(tokens.rows, top_k, kExperts, 7), top_k, drops, 0, true, 7),
      top_k, plan);
  RowBuffer rows, results;
  Matrix sums(tokens.rows, tokens.cols);
  testing::travel(dispatcher, {.plan = plan,
                               .tokens = tokens,
                               .rows = rows,
                               .scalars_out = std::nullopt,
                               .results = results,
                               .sums = sums});
  return sums;
}

double largest_relative_error(ConstMatrixView values, ConstMatrixView exact) {
  double largest = 0;
  for (Index i = 0; i < exact.size(); ++i)
    largest = std::max(largest, std::abs(double{values.data[i]} - exact.data[i]) / std::abs(exact.data[i]));
  return largest;
}

TEST(Dispatcher, Bf16OnTheWireRoundsEachRowOnceADirection) {
  const Communicator ep = Communicator::world();
  const Matrix tokens = testing::random_matrix(40, 33, 5);
  for (const Index top_k : {1, 4}) {
    const Matrix exact = there_and_back(ep, DispatcherKind::kAlltoall, {}, top_k, tokens);
    for (const Way& way : kWays) {
      if (way.kind == DispatcherKind::kShared) continue;
      const double error = largest_relative_error(
          there_and_back(ep, way.kind, {.dtype = WireDType::kBf16, .pretended_nodes = way.nodes}, top_k,
                         tokens),
          exact);
      // Half a unit in the 8th bit out, and as much back where a node returns a sum; a row alone is a bf16
      // number already.
      EXPECT_LE(error, (way.kind == DispatcherKind::kHierarchical ? 2.01 : 1.0) / 256) << way.name;
      const bool travels = ep.size() > 1 && (way.kind != DispatcherKind::kHierarchical || way.nodes > 1);
      EXPECT_EQ(error > 1e-4, travels) << way.name;
    }
  }
}

TEST(Dispatcher, FastSumsDifferFromExactOnesByRoundingAlone) {
  const Communicator ep = Communicator::world();
  const Matrix tokens = testing::random_matrix(40, 33, 5);
  for (const testing::Drops drops :
       {testing::Drops::kNone, testing::Drops::kSome, testing::Drops::kEverySecondToken}) {
    const Matrix exact =
        there_and_back(ep, DispatcherKind::kHierarchical, {.pretended_nodes = 2}, 7, tokens, drops);
    const Matrix fast =
        there_and_back(ep, DispatcherKind::kHierarchical,
                       {.combine = CombineMode::kFast, .pretended_nodes = 2}, 7, tokens, drops);
    // Seven equal numbers: six additions, each rounded to half a unit in the 24th bit, in either order.
    EXPECT_LE(largest_relative_error(fast, exact), 2 * 6 * 0x1p-24);
    // What is left of a token's seven may be few enough for either order to give the same.
    if (drops != testing::Drops::kNone) continue;
    EXPECT_EQ(largest_relative_error(fast, exact) != 0, ep.size() > 1);
  }
}

/// What one rank gets of an exchange of its own rows, out and back.
struct Moved {
  RowBuffer rows;
  Matrix sums;
};

Moved moved(const Communicator& ep, const Way& way, std::span<const std::int32_t> chosen, Index experts,
            const Matrix& tokens) {
  Dispatcher dispatcher(ep, experts, open_dispatcher(way.kind, ep, experts, {.pretended_nodes = way.nodes}));
  DispatchPlan plan;
  Moved result;
  dispatcher.plan(chosen, std::ssize(chosen) / tokens.rows(), plan);
  result.sums = Matrix(tokens.rows(), tokens.cols());
  RowBuffer results;
  testing::travel(dispatcher, {.plan = plan,
                               .tokens = tokens,
                               .rows = result.rows,
                               .scalars_out = std::nullopt,
                               .results = results,
                               .sums = result.sums});
  return result;
}

bool same_bits(ConstMatrixView a, ConstMatrixView b) {
  return a.rows == b.rows && a.cols == b.cols && std::ranges::equal(a.flat(), b.flat());
}

TEST(Dispatcher, RowsThatAreWrittenAroundTheCacheAreTheSame) {
  constexpr Index kTokens = 1031, kTopK = 4, kCols = 1040, kExperts = 8;
  static_assert(kTokens * kTopK * kCols >= 4 * 1024 * 1024 && kCols % 16 == 0, "fewer stay in the cache");
  const Communicator ep = Communicator::world();
  const auto seed = static_cast<std::uint64_t>(ep.rank());
  const Matrix tokens = testing::random_matrix(kTokens, kCols, seed);
  const auto chosen = testing::random_choices(kTokens, kTopK, kExperts, seed, -1);
  const Moved reference = moved(ep, kWays.front(), chosen, kExperts, tokens);
  for (const Way& way : kWays) {
    const Moved other = moved(ep, way, chosen, kExperts, tokens);
    EXPECT_TRUE(same_bits(other.rows, reference.rows)) << way.name;
    EXPECT_TRUE(same_bits(other.sums, reference.sums)) << way.name;
  }
}

TEST(Dispatcher, RefusesTokensThatWereNotPlanned) {
  for (const Way& way : kWays) {
    const Communicator alone = Communicator::self();
    Dispatcher dispatcher(alone, 4, open_dispatcher(way.kind, alone, 4));
    DispatchPlan plan;
    dispatcher.plan(std::vector<std::int32_t>{0, 1, 2, 3}, 2, plan);
    RowBuffer rows, results;
    std::vector<float> three(3), four(4);
    Matrix two_tokens(2, kHidden), three_tokens(3, kHidden);
    const auto trip = [&](Matrix& tokens, Matrix& sums) {
      return RoundTrip{.plan = plan,
                       .tokens = tokens,
                       .rows = rows,
                       .scalars_out = std::nullopt,
                       .results = results,
                       .sums = sums};
    };
    EXPECT_THROW(dispatcher.begin(trip(three_tokens, three_tokens)), ShapeError);
    EXPECT_THROW(dispatcher.begin(trip(two_tokens, three_tokens)), ShapeError);
    RoundTrip with_numbers = trip(two_tokens, two_tokens);
    with_numbers.scalars_out.emplace(three, four);
    EXPECT_THROW(dispatcher.begin(with_numbers), ShapeError);
    RoundTrip numbers_back = trip(two_tokens, two_tokens);
    numbers_back.scalars_back.emplace(three, four);
    dispatcher.begin(numbers_back);
    EXPECT_THROW(dispatcher.send_back(numbers_back, 0), ShapeError);
    results.reshape_uninitialised(5, kHidden);
    EXPECT_THROW(dispatcher.send_back(trip(two_tokens, two_tokens), 0), ShapeError);
  }
}

TEST(Dispatcher, RefusesRowsThatOthersCannotRead) {
  const Communicator alone = Communicator::self();
  for (const DispatcherKind kind : {DispatcherKind::kShared, DispatcherKind::kHierarchical}) {
    Dispatcher dispatcher(alone, 4, open_dispatcher(kind, alone, 4));
    DispatchPlan plan;
    dispatcher.plan(std::vector<std::int32_t>{0, 1, 2, 3}, 2, plan);
    Matrix tokens(2, kHidden);
    RowBuffer rows, results;
    const RoundTrip trip{.plan = plan,
                         .tokens = tokens,
                         .rows = rows,
                         .scalars_out = std::nullopt,
                         .results = results,
                         .sums = tokens};
    dispatcher.begin(trip);
    results = Matrix(4, kHidden);
    EXPECT_THROW(dispatcher.send_back(trip, 0), ShapeError);
    EXPECT_THROW(Dispatcher(alone, 4, {.kind = kind}), ShapeError);
  }
}

}  // namespace
}  // namespace moeloom
