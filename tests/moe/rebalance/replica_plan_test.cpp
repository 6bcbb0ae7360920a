#include "moe/rebalance/replica_plan.hpp"

#include "moe/rebalance/rebalance_counts.hpp"
#include "moeloom/base/random.hpp"
#include "moeloom/moe/routing/chosen_experts.hpp"
#include "tensor/tree_sum.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr RebalanceRates kFreeWeights{.row_products = 3000, .on_node = {10, 0}, .between_nodes = {10, 0}};

/// counts.of(s, e) = rows_of(s, e).
template <typename RowsOf>
SourceCounts counts_of(Index ranks, Index experts, RowsOf rows_of) {
  SourceCounts counts{ranks, experts, {}};
  for (Index source = 0; source < ranks; ++source)
    for (Index expert = 0; expert < experts; ++expert) counts.rows.push_back(rows_of(source, expert));
  return counts;
}

Index mean_of(const ReplicaPlacement& placement) {
  return ceil_div(placement.total(), placement.ranks());
}

struct Case {
  const char* name;
  SourceCounts counts;
  RebalanceVerdict verdict;
  Index fullest;   // rows, after
  Index replicas;  // of all ranks
};

std::vector<Case> cases() {
  const auto even = [](Index, Index) { return 10; };
  const auto one_expert = [](Index, Index expert) { return expert == 0 ? 100 : 0; };
  const auto hot_rank = [](Index, Index expert) { return expert < 2 ? 40 : 10; };
  const auto one_source = [](Index source, Index expert) { return source == 3 && expert == 0 ? 100 : 0; };
  return {
      {"nothing", counts_of(4, 8, [](Index, Index) { return 0; }), RebalanceVerdict::kEven, 0, 0},
      {"a rank alone", counts_of(1, 8, one_expert), RebalanceVerdict::kEven, 100, 0},
      {"even", counts_of(4, 8, even), RebalanceVerdict::kEven, 80, 0},
      {"one expert has everything", counts_of(4, 8, one_expert), RebalanceVerdict::kMade, 100, 3},
      {"one expert has everything, 8 ranks", counts_of(8, 8, one_expert), RebalanceVerdict::kMade, 100, 7},
      {"two hot experts of a rank", counts_of(4, 8, hot_rank), RebalanceVerdict::kMade, 160, 3},
      {"two ranks", counts_of(2, 4, hot_rank), RebalanceVerdict::kMade, 120, 1},
      {"one atom", counts_of(4, 8, one_source), RebalanceVerdict::kNoRoom, 100, 0}};
}

TEST(ReplicaPlan, EvensOutWhatAtomsAllow) {
  for (const Case& c : cases()) {
    const ReplicaPlan plan = plan_replicas(c.counts, kFreeWeights, {});
    EXPECT_EQ(name_of(plan.verdict), name_of(c.verdict)) << c.name;
    EXPECT_EQ(plan.fullest_after, c.fullest) << c.name;
    Index replicas = 0;
    for (Index rank = 0; rank < c.counts.ranks; ++rank) replicas += plan.placement.replica_count(rank);
    EXPECT_EQ(replicas, c.replicas) << c.name;
  }
}

TEST(ReplicaPlan, RowsOfAnExpertThatAllNeedStayWhereTheyAre) {
  const ReplicaPlan plan = plan_replicas(cases()[3].counts, kFreeWeights, {});
  for (Index source = 0; source < 4; ++source) EXPECT_EQ(plan.placement.rank_of(source, 0), source);
  EXPECT_EQ(plan.after.rows, 0) << "nothing travels but weights";
}

TEST(ReplicaPlan, SaysNoWhereWeightsTakeLongerThanRowsSave) {
  // 300 rows leave the fullest rank: 300 x 3000 ns of products and, of 300 rows, four crossings each.
  const SourceCounts counts = cases()[3].counts;
  RebalanceRates rates{.row_products = 3000, .on_node = {}, .between_nodes = {100, 0}};
  const std::vector<Index> node_of = {0, 1, 2, 3};
  const PlacementCost stay = cost_of(ReplicaPlacement(counts), rates, node_of);
  EXPECT_EQ(stay.total(), 400 * 3000 + 4 * 300 * 100);
  // With w ns a replica: own rows 100 x 1000, beside them 3 w of weights leave; backward 100 x 1000 of
  // rows, and beside as much of own sums 3 w of gradients.
  for (const auto& [weights, pays] : {std::pair(100000, true), {150000, true}, {1000000, false}}) {
    rates.between_nodes.weights = rates.between_nodes.gradients = weights;
    const ReplicaPlan plan = plan_replicas(counts, rates, node_of);
    EXPECT_EQ(plan.moves(), pays) << weights;
    EXPECT_EQ(plan.verdict, pays ? RebalanceVerdict::kMade : RebalanceVerdict::kDoesNotPay);
    EXPECT_EQ(plan.after.total() < plan.before.total(), pays);
  }
  rates = {.row_products = 3000, .on_node = {}, .between_nodes = {100, 150000, 1200000}};
  EXPECT_FALSE(plan_replicas(counts, rates, node_of).moves()) << "nor where gradients take longer";
}

TEST(ReplicaPlan, KnowsWhatTheSameRowsWouldCostIfEveryRankHadAsMany) {
  const RebalanceRates rates{.row_products = 3000, .on_node = {100, 0}, .between_nodes = {}};
  // 400 rows on one of four ranks, 300 of them from others, there and back in both passes.
  const ReplicaPlan uneven = plan_replicas(cases()[3].counts, rates, {});
  EXPECT_EQ(uneven.before.total(), 400 * 3000 + 4 * 300 * 100);
  EXPECT_EQ(uneven.before.even, (400 * 3000 + 4 * 300 * 100) / 4);
  const ReplicaPlan even = plan_replicas(counts_of(4, 8, [](Index, Index) { return 10; }), rates, {});
  EXPECT_EQ(even.before.total(), even.before.even);
  RebalanceCounts counts;
  counts.add(uneven, 1);
  counts.add(even, 1);
  counts.add({}, 1);  // no rebalancing
  EXPECT_EQ(counts.uneven_nanoseconds, 3 * uneven.before.even);
  EXPECT_EQ(counts.saved_nanoseconds, uneven.before.total() - 100 * 3000) << "rows stay where they are";
  EXPECT_EQ(counts.decisions(), 0) << "the first rank of the row counts those";
}

TEST(ReplicaPlan, LeavesWhatSavesLessThanATwentieth) {
  const auto uneven = [](Index, Index expert) { return expert == 0 ? 1060 : expert == 1 ? 40 : 500; };
  const SourceCounts counts = counts_of(2, 4, uneven);  // 2200 and 2000 rows: 4.5 % too many
  EXPECT_EQ(plan_replicas(counts, kFreeWeights, {}).verdict, RebalanceVerdict::kEven);
  const auto more = [](Index, Index expert) { return expert == 0 ? 1080 : expert == 1 ? 40 : 500; };
  const ReplicaPlan plan = plan_replicas(counts_of(2, 4, more), kFreeWeights, {});
  EXPECT_EQ(plan.verdict, RebalanceVerdict::kDoesNotPay) << "2240 rows could be 2160";
}

TEST(ReplicaPlan, GivesSourcesThatShareABranchToOneReplica) {
  // Expert 0 of rank 0 is hot for all of 8 sources. Two replicas suffice, and each returns one gradient.
  const auto hot = [](Index source, Index expert) {
    return expert == 0 && source >= 4 ? 100 : expert < 8 ? 25 : 0;
  };
  const RebalanceRates rates{.row_products = 3000, .on_node = {1, 20000, 20000}, .between_nodes = {}};
  const ReplicaPlan plan = plan_replicas(counts_of(8, 8, hot), rates, {});
  ASSERT_TRUE(plan.moves());
  Index replicas = 0, gradients = 0;
  for (Index rank = 0; rank < 8; ++rank) replicas += plan.placement.replica_count(rank);
  for (const SourceBranch& branch : plan.placement.branches(0)) gradients += branch.rank != 0;
  EXPECT_EQ(gradients, replicas);
}

TEST(ReplicaPlan, TakesTheReplicaOnTheSameNodeWhereThatIsCheaper) {
  const auto hot = [](Index, Index expert) { return expert == 0 ? 30 : 10; };
  const RebalanceRates rates{
      .row_products = 3000, .on_node = {1, 1000, 1000}, .between_nodes = {100, 100000, 100000}};
  const ReplicaPlan plan = plan_replicas(counts_of(4, 4, hot), rates, std::vector<Index>{0, 0, 1, 1});
  ASSERT_TRUE(plan.moves());
  EXPECT_GT(plan.placement.replica_count(1), 0);
  EXPECT_EQ(plan.placement.replica_count(2) + plan.placement.replica_count(3), 0);
}

/// Loads of every kind: a source's rows of an expert fall with its rank in heat, or are drawn.
SourceCounts drawn_counts(std::uint64_t seed) {
  const CounterRandom random(seed, stream_of("counts"));
  constexpr Index kRanks[] = {1, 2, 3, 4, 8};
  const Index ranks = kRanks[random.below(5, 0)];
  const Index experts = ranks + static_cast<Index>(random.below(30, 1));
  const double steepness = 2 * random.uniform(2);
  const auto tokens = static_cast<double>(random.below(2000, 3));
  const auto shift = static_cast<Index>(random.below(static_cast<std::size_t>(experts), 4));
  return counts_of(ranks, experts, [&](Index source, Index expert) {
    const Index heat = (expert + shift) % experts + 1;
    const auto draw = static_cast<std::uint64_t>(10 + source * experts + expert);
    return static_cast<std::int64_t>(tokens * std::pow(heat, -steepness) * random.uniform(draw));
  });
}

TEST(ReplicaPlan, EveryRowIsComputedOnceAndTheFullestRankIsAsEvenAsAtomsAllow) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(seed);
    const SourceCounts counts = drawn_counts(seed);
    const ReplicaPlan plan = plan_replicas(counts, kFreeWeights, {});
    const ReplicaPlacement& placement = plan.placement;
    std::vector<Index> loads(at(counts.ranks));
    for (Index source = 0; source < counts.ranks; ++source)
      for (Index expert = 0; expert < counts.experts; ++expert)
        loads[at(placement.rank_of(source, expert))] += counts.of(source, expert);
    Index smallest = 0;  // atom of the fullest rank
    const Index fullest = placement.fullest();
    for (Index source = 0; source < counts.ranks; ++source)
      for (Index expert = 0; expert < counts.experts; ++expert)
        if (const Index rows = counts.of(source, expert);
            rows > 0 && placement.rank_of(source, expert) == fullest)
          smallest = smallest == 0 ? rows : std::min(smallest, rows);
    for (Index rank = 0; rank < counts.ranks; ++rank) {
      EXPECT_EQ(loads[at(rank)], placement.load(rank));
      EXPECT_LE(placement.replica_count(rank), ceil_div(counts.experts, counts.ranks));
      EXPECT_EQ(placement.replica_count(rank), std::ssize(placement.replicas(rank)));
    }
    EXPECT_EQ(plan.fullest_after, *std::ranges::max_element(loads));
    EXPECT_LE(plan.fullest_after, plan.fullest_before);
    // Where it is not within 5 %, no atom could leave it for the emptiest rank without filling that as much;
    // or room for replicas ended, which these loads do not meet.
    const Index allowed =
        std::max(105 * placement.total() / (100 * counts.ranks), mean_of(placement) + smallest);
    // What saves less than 5 % is left, and the rows' travel is some of the cost.
    const Index left = plan.verdict == RebalanceVerdict::kDoesNotPay ? plan.fullest_after / 16 : 0;
    EXPECT_LE(plan.fullest_after - left, allowed);
  }
}

TEST(ReplicaPlan, BranchesHoldEachRowOnceAndAddUpAlongTheTree) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const ReplicaPlan plan = plan_replicas(drawn_counts(seed), kFreeWeights, {});
    const ReplicaPlacement& placement = plan.placement;
    for (Index expert = 0; expert < placement.experts(); ++expert) {
      const std::vector<SourceBranch> branches = placement.branches(expert);
      Index rows = 0, next = 0;
      for (const SourceBranch& branch : branches) {
        EXPECT_GE(branch.lo, next);
        next = branch.hi;
        rows += branch.rows;
        EXPECT_GT(branch.rows, 0);
        // A branch of the tree: where its first half ends, the tree splits.
        Index lo = 0, hi = placement.ranks();
        while (lo != branch.lo || hi != branch.hi) {
          ASSERT_GT(hi - lo, 1);
          const Index mid = tree_split(lo, hi);
          (branch.lo < mid ? hi : lo) = mid;
        }
        for (Index source = branch.lo; source < branch.hi; ++source)
          EXPECT_TRUE(placement.counts().of(source, expert) == 0 ||
                      placement.rank_of(source, expert) == branch.rank);
      }
      Index all = 0;
      for (Index source = 0; source < placement.ranks(); ++source)
        all += placement.counts().of(source, expert);
      EXPECT_EQ(rows, all);
      EXPECT_EQ(
          branches.size() <= 1 && (branches.empty() || branches[0].rank == placement.counts().owner(expert)),
          !placement.is_split(expert));
    }
  }
}

TEST(ReplicaPlan, ServedNumbersNameTheRankThatComputesThem) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const ReplicaPlan plan = plan_replicas(drawn_counts(seed), kFreeWeights, {});
    if (!plan.moves()) continue;
    const ReplicaPlacement& placement = plan.placement;
    const SourceCounts& counts = placement.counts();
    const ServedExperts& served = plan.served;
    const Index each = served.count() / placement.ranks();
    EXPECT_EQ(each, served.own() + served.replicas_a_rank());
    const SourceCounts of_served = served.counts(counts);
    EXPECT_EQ(std::reduce(of_served.rows.begin(), of_served.rows.end()), placement.total());
    for (Index source = 0; source < placement.ranks(); ++source) {
      std::vector<std::int32_t> chosen = {kNoExpert}, numbers;
      for (Index expert = 0; expert < counts.experts; ++expert)
        if (counts.of(source, expert) > 0) chosen.push_back(static_cast<std::int32_t>(expert));
      served.translate(chosen, source, numbers);
      EXPECT_EQ(numbers[0], kNoExpert);
      for (std::size_t i = 1; i < chosen.size(); ++i) {
        const Index rank = placement.rank_of(source, chosen[i]);
        EXPECT_EQ(numbers[i] / each, rank);
        EXPECT_EQ(numbers[i] % each >= served.own(), placement.holds_replica(rank, chosen[i]));
        EXPECT_EQ(of_served.of(source, numbers[i]), counts.of(source, chosen[i]));
      }
    }
  }
}

TEST(ReplicaPlacement, OwnersAreThoseOfTheMesh) {
  for (const auto& [ranks, experts] : {std::pair<Index, Index>{4, 8}, {4, 7}, {3, 8}, {8, 5}, {1, 3}})
    for (Index rank = 0; rank < ranks; ++rank) {
      const ExpertRange held = experts_of(experts, ranks, rank);
      for (Index i = 0; i < held.count; ++i)
        EXPECT_EQ((SourceCounts{ranks, experts, {}}.owner(held.begin + i)), rank);
    }
}

}  // namespace
}  // namespace moeloom
