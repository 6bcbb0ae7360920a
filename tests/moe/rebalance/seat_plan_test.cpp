#include "moeloom/moe/rebalance/seat_plan.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr RebalanceRates kFreeWeights{.row_products = 3000, .on_node = {0, 0}, .between_nodes = {0, 0}};

std::vector<Index> loads_of_ranks(const std::vector<Index>& rows, const ExpertSeats& seats, Index ranks) {
  std::vector<Index> loads(at(ranks));
  for (Index seat = 0; seat < seats.count(); ++seat)
    loads[at(seat * ranks / seats.count())] += rows[at(seats.expert_at(seat))];
  return loads;
}

SeatPlan plan_of(const std::vector<Index>& rows, Index ranks, const RebalanceRates& rates = kFreeWeights) {
  return plan_seats({rows, rows}, ExpertSeats(std::ssize(rows)), {.ranks = ranks}, rates, 1);
}

TEST(SeatPlan, LeavesEvenLoadAlone) {
  const SeatPlan plan = plan_of({10, 10, 10, 10}, 2);
  EXPECT_EQ(plan.verdict, SeatVerdict::kEven);
  EXPECT_EQ(plan.load_before, 1);
  EXPECT_TRUE(plan.seats.as_numbered());
  EXPECT_EQ(plan_of({0, 0, 0, 0}, 2).verdict, SeatVerdict::kEven) << "no rows at all";
  EXPECT_EQ(plan_of({90, 1, 1, 1}, 1).verdict, SeatVerdict::kEven) << "a rank alone";
}

TEST(SeatPlan, PartsTwoHotExpertsOfARank) {
  const SeatPlan plan = plan_of({40, 40, 10, 10}, 2);
  EXPECT_EQ(plan.verdict, SeatVerdict::kMade);
  EXPECT_EQ(plan.moved, 2);
  EXPECT_DOUBLE_EQ(plan.load_before, 1.6);
  EXPECT_DOUBLE_EQ(plan.load_after, 1.0);
  EXPECT_EQ(loads_of_ranks({40, 40, 10, 10}, plan.seats, 2), (std::vector<Index>{50, 50}));
  // 60 of 160 rows (both halves) leave the fullest rank.
  EXPECT_EQ(plan.saved, 60 * 3000);
}

TEST(SeatPlan, FindsNothingBetterForOneExpertThatHasEverything) {
  EXPECT_EQ(plan_of({80, 0, 0, 0}, 4).verdict, SeatVerdict::kNoneBetter);
}

TEST(SeatPlan, CountsWhatMovingCostsTheBusiestRank) {
  // Each rank sends one expert and takes one: weights and two moments.
  const auto with_weights = [](std::int64_t nanoseconds) {
    return RebalanceRates{.row_products = 3000, .on_node = {0, nanoseconds}, .between_nodes = {0, 0}};
  };
  const SeatPlan pays = plan_of({40, 40, 10, 10}, 2, with_weights(1000));
  EXPECT_EQ(pays.verdict, SeatVerdict::kMade);
  EXPECT_EQ(pays.moving, 3 * 1000);
  const SeatPlan dear = plan_of({40, 40, 10, 10}, 2, with_weights(60'000));
  EXPECT_EQ(dear.verdict, SeatVerdict::kDoesNotPay);
  EXPECT_EQ(dear.saved, 180'000);
  EXPECT_EQ(dear.moving, 180'000);
  EXPECT_EQ(dear.moved, 0);
  EXPECT_TRUE(dear.seats.as_numbered());
}

TEST(SeatPlan, CountsFourCrossingsOfARowAndTheColumnsThatShareIt) {
  const RebalanceRates rates{.row_products = 3000, .on_node = {100, 0}, .between_nodes = {900, 0}};
  const SeatLoads loads{{40, 40, 10, 10}, {40, 40, 10, 10}};
  const auto saved = [&](std::vector<Index> node_of, Index columns) {
    return plan_seats(loads, ExpertSeats(4), {.ranks = 2, .node_of = std::move(node_of)}, rates, columns)
        .saved;
  };
  EXPECT_EQ(saved({0, 0}, 1), 60 * (3000 + 4 * 100 / 2)) << "half of a rank's rows come from the other";
  EXPECT_EQ(saved({0, 1}, 1), 60 * (3000 + 4 * 900 / 2));
  EXPECT_EQ(saved({0, 1}, 2), 60 * (3000 + 4 * 900 / 2) / 2);
}

TEST(SeatPlan, WaitsForAnImbalanceThatLasts) {
  const auto verdict = [](const std::vector<Index>& first, const std::vector<Index>& second) {
    return plan_seats({first, second}, ExpertSeats(4), {.ranks = 2}, kFreeWeights, 1).verdict;
  };
  EXPECT_EQ(verdict({90, 90, 10, 10}, {10, 10, 10, 10}), SeatVerdict::kDoesNotLast);
  EXPECT_EQ(verdict({10, 10, 10, 10}, {90, 90, 10, 10}), SeatVerdict::kDoesNotLast);
  EXPECT_EQ(verdict({90, 90, 10, 10}, {60, 60, 10, 10}), SeatVerdict::kMade);
}

TEST(SeatPlan, EvensOutNodesWhereAPoolEvensOutTheirRanks) {
  const std::vector<Index> rows = {30, 30, 2, 2, 2, 2, 30, 30};  // even by node, not by rank
  const SeatRanks by_rank{.ranks = 4, .node_of = {0, 0, 1, 1}};
  SeatRanks by_node = by_rank;
  by_node.pooled_by_node = true;
  EXPECT_EQ(plan_seats({rows, rows}, ExpertSeats(8), by_rank, kFreeWeights, 1).verdict, SeatVerdict::kMade);
  EXPECT_EQ(plan_seats({rows, rows}, ExpertSeats(8), by_node, kFreeWeights, 1).verdict, SeatVerdict::kEven);
  const std::vector<Index> uneven = {30, 30, 30, 30, 2, 2, 2, 2};
  const SeatPlan plan = plan_seats({uneven, uneven}, ExpertSeats(8), by_node, kFreeWeights, 1);
  EXPECT_EQ(plan.verdict, SeatVerdict::kMade);
  EXPECT_EQ(plan.moved, 4) << "two of each node; of a node's own ranks none";
  EXPECT_DOUBLE_EQ(plan.load_after, 1);
}

TEST(SeatPlan, EvensOutZipfLoadsAndNeverMakesTheFullestRankFuller) {
  const CounterRandom random(7, 0);
  for (const Index ranks : {2, 4, 16}) {
    std::vector<Index> rows(64), order(64);
    for (std::size_t e = 0; e < rows.size(); ++e) rows[e] = 1000 / (static_cast<Index>(e) + 1);
    std::iota(order.begin(), order.end(), Index{0});
    // Shuffled by a table that no sort of the search follows.
    std::ranges::sort(order, {}, [&](Index e) { return random.bits(static_cast<std::uint64_t>(e)); });
    std::vector<Index> shuffled(rows.size());
    for (std::size_t e = 0; e < rows.size(); ++e) shuffled[e] = rows[at(order[e])];
    const SeatPlan plan = plan_of(shuffled, ranks);
    const Index hottest = 1000, total = std::reduce(rows.begin(), rows.end());
    const std::vector<Index> after = loads_of_ranks(shuffled, plan.seats, ranks);
    const std::vector<Index> before = loads_of_ranks(shuffled, ExpertSeats(64), ranks);
    EXPECT_LE(*std::ranges::max_element(after), *std::ranges::max_element(before));
    if (ranks < 16) {
      EXPECT_LE(*std::ranges::max_element(after), 107 * total / (100 * ranks)) << ranks;
    } else {
      // One expert alone has more than the mean: beside it lie the three emptiest at best.
      EXPECT_LE(*std::ranges::max_element(after), hottest + 3 * 40) << ranks;
    }
  }
}

TEST(SeatPlan, NeedsAsManyExpertsOnEveryRank) {
  EXPECT_THROW(plan_of({1, 2, 3}, 2), ShapeError);
}

}  // namespace
}  // namespace moeloom
