#include "moe/dispatch/dispatch_plan.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/comm/mesh.hpp"

#include <algorithm>
#include <numeric>

#include "dispatch/dropped_slots.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

struct Case {
  Index tokens, top_k, experts, ranks, favourite;
};

const std::vector<Case> kCases = {{0, 2, 8, 4, -1},  {1, 1, 8, 2, -1}, {1, 8, 8, 8, -1},   {7, 3, 8, 1, -1},
                                  {50, 2, 8, 4, 5},  {64, 1, 8, 4, 0}, {33, 4, 16, 2, -1}, {9, 2, 7, 3, -1},
                                  {5000, 2, 8, 2, 1}};  // several tasks of slots

DispatchPlan sending(const Case& c, std::uint64_t seed) {
  DispatchPlan plan;
  plan_sending(testing::random_choices(c.tokens, c.top_k, c.experts, seed, c.favourite), c.top_k, c.experts,
               c.ranks, plan);
  return plan;
}

TEST(DispatchPlan, SlotsLeaveOrderedByExpertAndThenByToken) {
  for (const Case& c : kCases) {
    const auto chosen = testing::random_choices(c.tokens, c.top_k, c.experts, 3, c.favourite);
    const DispatchPlan plan = sending(c, 3);
    ASSERT_EQ(static_cast<Index>(plan.slot_order.size()), c.tokens * c.top_k);
    for (std::size_t place = 1; place < plan.slot_order.size(); ++place) {
      const auto before = static_cast<std::size_t>(plan.slot_order[place - 1]);
      const auto here = static_cast<std::size_t>(plan.slot_order[place]);
      EXPECT_TRUE(chosen[before] < chosen[here] || (chosen[before] == chosen[here] && before < here));
    }
    for (std::size_t slot = 0; slot < plan.slot_place.size(); ++slot)
      EXPECT_EQ(plan.slot_order[static_cast<std::size_t>(plan.slot_place[slot])], static_cast<Index>(slot));
  }
}

TEST(DispatchPlan, IsTheSameForAnyNumberOfThreads) {
  const int before = threads();
  for (const Index tokens : {1, 1023, 1024, 1025, 5000}) {
    std::vector<std::int32_t> chosen = testing::random_choices(tokens, 4, 16, 9, 3);
    for (std::size_t slot = 5; slot < chosen.size(); slot += 7) chosen[slot] = kNoExpert;
    DispatchPlan alone, together;
    set_threads(1);
    plan_sending(chosen, 4, 16, 2, alone);
    set_threads(3);
    plan_sending(chosen, 4, 16, 2, together);
    EXPECT_EQ(alone.slot_order, together.slot_order) << tokens;
    EXPECT_EQ(alone.slot_place, together.slot_place) << tokens;
    EXPECT_EQ(alone.tokens_per_expert, together.tokens_per_expert) << tokens;
    EXPECT_EQ(count_choices(chosen, 16), alone.tokens_per_expert) << tokens;
  }
  set_threads(before);
}

TEST(DispatchPlan, ASlotWithoutAnExpertIsNotCountedAndDoesNotLeave) {
  DispatchPlan plan;
  plan_sending(std::vector<std::int32_t>{2, kNoExpert, kNoExpert, kNoExpert, 0, 2}, 2, 3, 3, plan);
  EXPECT_EQ(plan.slots(), 6);
  EXPECT_EQ(plan.places(), 3);
  EXPECT_FALSE(plan.every_slot_leaves());
  EXPECT_EQ(plan.tokens_per_expert, (std::vector<Index>{1, 0, 2}));
  EXPECT_EQ(plan.sent_per_rank, (std::vector<Index>{1, 0, 2}));
  EXPECT_EQ(plan.slot_order, (std::vector<Index>{4, 0, 5}));
  EXPECT_EQ(plan.slot_place, (std::vector<Index>{1, -1, -1, -1, 0, 2}));
  EXPECT_FALSE(plan.leaves(1));
  plan_sending(std::vector<std::int32_t>(4, kNoExpert), 2, 3, 3, plan);
  EXPECT_EQ(plan.places(), 0);
  plan_sending(std::vector<std::int32_t>{2, 1}, 2, 3, 3, plan);
  EXPECT_TRUE(plan.every_slot_leaves());
}

TEST(DispatchPlan, CountsAreConserved) {
  for (const Case& c : kCases) {
    const DispatchPlan plan = sending(c, 4);
    EXPECT_EQ(std::reduce(plan.tokens_per_expert.begin(), plan.tokens_per_expert.end()), c.tokens * c.top_k);
    EXPECT_EQ(std::reduce(plan.sent_per_rank.begin(), plan.sent_per_rank.end()), c.tokens * c.top_k);
  }
}

TEST(DispatchPlan, RowsLandByLocalExpertThenSourceThenToken) {
  // Two sources, three local experts: source 0 sends 2, 0, 1 rows and source 1 sends 1, 3, 0.
  DispatchPlan plan;
  plan.ranks = 2;
  plan_receiving(std::vector<std::int64_t>{2, 0, 1, 1, 3, 0}, plan);
  EXPECT_EQ(plan.received_per_rank, (std::vector<Index>{3, 4}));
  EXPECT_EQ(plan.rows_per_source, (std::vector<Index>{2, 1, 0, 3, 1, 0}));
  EXPECT_EQ(plan.landing_order, (std::vector<Index>{0, 1, 3, 4, 5, 6, 2}));
  EXPECT_EQ(plan.rows(), 7);
}

TEST(DispatchPlan, NothingIsReceivedFromRanksWithoutTokens) {
  DispatchPlan plan;
  plan.ranks = 4;
  plan_receiving(std::vector<std::int64_t>(8, 0), plan);
  EXPECT_EQ(plan.rows(), 0);
  EXPECT_TRUE(plan.landing_order.empty());
}

struct LandedSlot {
  std::int32_t expert = 0;
  Index source = 0;
  std::size_t slot = 0;
  auto operator<=>(const LandedSlot&) const = default;
};

/// What lands at a rank, in the order of its rows: by expert, then source, then token.
std::vector<LandedSlot> landed_slots(const std::vector<std::vector<std::int32_t>>& chosen,
                                     const ExpertRange& held) {
  std::vector<LandedSlot> landed;
  for (Index source = 0; source < std::ssize(chosen); ++source)
    for (std::size_t slot = 0; slot < chosen[at(source)].size(); ++slot) {
      const std::int32_t expert = chosen[at(source)][slot];
      if (expert >= held.begin && expert < held.begin + held.count) landed.push_back({expert, source, slot});
    }
  std::ranges::sort(landed);
  return landed;
}

/// Both receiving halves of every rank of a case, from the same choices.
void expect_landings_where_rows_are_regrouped(const Case& c, testing::Drops drops) {
  std::vector<std::vector<std::int32_t>> chosen;
  std::vector<std::int64_t> counts;  // [ep, E]
  for (Index rank = 0; rank < c.ranks; ++rank) {
    const auto seed = static_cast<std::uint64_t>(rank);
    chosen.push_back(
        testing::dropped(testing::random_choices(c.tokens + 3 * rank, c.top_k, c.experts, seed, c.favourite),
                         c.top_k, drops, 0, rank == c.ranks - 1, seed));
    std::vector<std::int64_t> own(static_cast<std::size_t>(c.experts));
    for (const std::int32_t expert : chosen.back())
      if (expert != kNoExpert) ++own[static_cast<std::size_t>(expert)];
    counts.insert(counts.end(), own.begin(), own.end());
  }
  const auto counts_for = [&](Index rank) {
    return landing_counts(c.experts, c.ranks, rank, [&](Index source) {
      return std::span<const std::int64_t>(counts).subspan(at(source * c.experts), at(c.experts));
    });
  };
  std::vector<std::vector<Landing>> landings_of(at(c.ranks));  // [source][slot]
  for (Index rank = 0; rank < c.ranks; ++rank) {
    const ExpertRange held = experts_of(c.experts, c.ranks, rank);
    std::vector<std::int64_t> received;
    for (Index source = 0; source < c.ranks; ++source)
      for (Index i = 0; i < held.count; ++i)
        received.push_back(counts[static_cast<std::size_t>(source * c.experts + held.begin + i)]);
    DispatchPlan regrouped;
    regrouped.ranks = c.ranks;
    plan_receiving(received, regrouped);
    DispatchPlan plan;
    plan_sending(chosen[at(rank)], c.top_k, c.experts, c.ranks, plan);
    plan_landing(counts_for(rank), chosen[at(rank)], rank, plan, landings_of[at(rank)]);
    const std::vector<Index> first_rows = first_rows_of_sources(received, c.ranks);
    for (Index source = 0; source < c.ranks; ++source)
      for (Index i = 0; i < held.count; ++i)
        EXPECT_EQ(first_rows[at(source * held.count + i)], counts_for(source).first_rows[at(held.begin + i)])
            << "as the holder says it and as the sender finds it";
    EXPECT_EQ(plan.rows_per_source, regrouped.rows_per_source);
    EXPECT_EQ(plan.received_per_rank, regrouped.received_per_rank);
    EXPECT_EQ(plan.rows(), std::ssize(landed_slots(chosen, held)));
  }
  for (Index source = 0; source < c.ranks; ++source)
    for (std::size_t slot = 0; slot < chosen[at(source)].size(); ++slot)
      ASSERT_EQ(landings_of[at(source)][slot].exists(), chosen[at(source)][slot] != kNoExpert);
  for (Index rank = 0; rank < c.ranks; ++rank) {
    Index row = 0;
    for (const LandedSlot& landed : landed_slots(chosen, experts_of(c.experts, c.ranks, rank))) {
      const Landing& landing = landings_of[at(landed.source)][landed.slot];
      ASSERT_EQ(landing.rank, rank);
      ASSERT_EQ(landing.row, row++);
    }
  }
}
TEST(DispatchPlan, LandingsAreThePlacesThatRowsWouldBeRegroupedTo) {
  for (const Case& c : kCases)
    for (const testing::Drops drops : testing::kDrops) expect_landings_where_rows_are_regrouped(c, drops);
}

TEST(DispatchPlan, AWaysOwnPartIsKeptForTheSameWayAndRefusedToAnother) {
  DispatchPlan plan;
  HierarchicalPlan& own = make_own<HierarchicalPlan>(plan);
  own.landings.resize(5);
  const Landing* const first = own.landings.data();
  EXPECT_EQ(make_own<HierarchicalPlan>(plan).landings.data(), first);
  EXPECT_EQ(own_of<HierarchicalPlan>(plan, "hierarchical").landings.size(), 5u);
  make_own<std::monostate>(plan);
  EXPECT_THROW(own_of<HierarchicalPlan>(plan, "hierarchical"), ShapeError);
}

TEST(DispatchPlan, RefusesAnExpertThatDoesNotExist) {
  DispatchPlan plan;
  EXPECT_THROW(plan_sending(std::vector<std::int32_t>{0, 8}, 2, 8, 2, plan), ShapeError);
  EXPECT_THROW(plan_sending(std::vector<std::int32_t>{0, -2}, 2, 8, 2, plan), ShapeError);
  EXPECT_THROW(plan_sending(std::vector<std::int32_t>{0, 1, 2}, 2, 8, 2, plan), ShapeError);
}

}  // namespace
}  // namespace moeloom
