#include "measure/workload.hpp"

#include "moeloom/base/statistics.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <stdexcept>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr WorkloadShape kShape{.tokens = 2048, .experts = 16, .top_k = 2};
constexpr std::uint64_t kSeed = 7;

std::vector<std::int32_t> choices(Workload workload, Index step, const WorkloadShape& shape = kShape) {
  return choose_experts(workload, shape, kSeed, step, {0, shape.tokens});
}

std::vector<Index> rows_of(Workload workload, Index step, const WorkloadShape& shape = kShape) {
  return rows_per_expert(workload, shape, kSeed, step);
}

/// Of the block of experts that each of `ep` ranks holds.
std::vector<Index> rows_per_rank(const std::vector<Index>& per_expert, Index ep) {
  std::vector<Index> rows(at(ep));
  for (std::size_t e = 0; e < per_expert.size(); ++e) rows[e * at(ep) / per_expert.size()] += per_expert[e];
  return rows;
}

TEST(MeasureWorkload, EveryTokenGoesToDifferentExpertsWhateverTheSizes) {
  for (const WorkloadShape& shape : {kShape, WorkloadShape{1, 1, 1}, WorkloadShape{0, 8, 2},
                                     WorkloadShape{33, 7, 3}, WorkloadShape{5, 4, 4}})
    for (const Workload workload : kWorkloads) {
      if (why_not(workload, shape)) continue;
      for (Index step = 0; step < kBurstPeriod; ++step) {
        const auto topk_idx = choices(workload, step, shape);
        ASSERT_EQ(std::ssize(topk_idx), shape.tokens * shape.top_k) << name_of(workload);
        for (Index t = 0; t < shape.tokens; ++t) {
          const auto first = topk_idx.begin() + t * shape.top_k;
          const std::set<std::int32_t> chosen(first, first + shape.top_k);
          EXPECT_EQ(std::ssize(chosen), shape.top_k) << name_of(workload) << " token " << t;
          EXPECT_TRUE(*chosen.begin() >= 0 && *chosen.rbegin() < shape.experts) << name_of(workload);
        }
      }
    }
}

TEST(MeasureWorkload, RanksTogetherHaveTheGlobalChoicesHoweverManyThereAre) {
  for (const Workload workload : kWorkloads)
    for (const Index ranks : {1, 2, 3, 8}) {
      std::vector<std::int32_t> together;
      for (Index rank = 0; rank < ranks; ++rank) {
        const TokenRange range = tokens_of_rank(workload, kShape.tokens, ranks, rank);
        const auto mine = choose_experts(workload, kShape, kSeed, 3, range);
        together.insert(together.end(), mine.begin(), mine.end());
      }
      EXPECT_EQ(together, choices(workload, 3)) << name_of(workload) << " on " << ranks;
    }
}

TEST(MeasureWorkload, ChoicesFollowFromNameSeedAndStepAlone) {
  for (const Workload workload : kWorkloads) {
    EXPECT_EQ(choices(workload, 2), choices(workload, 2)) << name_of(workload);
    EXPECT_NE(choices(workload, 1), choices(workload, 2)) << name_of(workload);
    EXPECT_NE(choose_experts(workload, kShape, kSeed + 1, 2, {0, kShape.tokens}), choices(workload, 2))
        << name_of(workload);
  }
}

TEST(MeasureWorkload, BalancedGivesEachExpertAsMany) {
  const std::vector<Index> rows = rows_of(Workload::kBalanced, 5);
  EXPECT_EQ(rows, std::vector<Index>(16, 2048 * 2 / 16));
  const std::vector<Index> odd = rows_of(Workload::kBalanced, 5, {.tokens = 33, .experts = 7, .top_k = 3});
  EXPECT_LE(*std::ranges::max_element(odd) - *std::ranges::min_element(odd), 1);
}

TEST(MeasureWorkload, HotExpertsFallOffAsZipfAndStayTheSame) {
  std::vector<Index> rows = rows_of(Workload::kHotExperts, 0);
  const auto favourite = std::ranges::max_element(rows) - rows.begin();
  const std::vector<Index> later = rows_of(Workload::kHotExperts, 9);
  EXPECT_EQ(std::ranges::max_element(later) - later.begin(), favourite);
  std::ranges::sort(rows, std::ranges::greater());
  EXPECT_GT(max_over_mean(rows), 3);
  EXPECT_GT(rows[0], rows[3] * 3 / 2);
  EXPECT_GT(rows[3], rows[15] * 2);
  EXPECT_GT(rows[15], 0);
}

TEST(MeasureWorkload, RandomLoadsExpertsAlikeAndZipfTheFirstMost) {
  EXPECT_LT(max_over_mean(rows_of(Workload::kRandom, 0)), 1.3);
  const std::vector<Index> rows = rows_of(Workload::kZipf, 0);
  EXPECT_EQ(std::ranges::max_element(rows), rows.begin());
  EXPECT_GT(max_over_mean(rows), 2.5);
  EXPECT_GT(rows[15], 0);
}

TEST(MeasureWorkload, HotGivesOneExpertARowOfEveryTokenOrHalfOfThemAll) {
  for (const Index top_k : {1, 2, 3}) {
    const std::vector<Index> rows = rows_of(Workload::kHot, 0, {.tokens = 60, .experts = 6, .top_k = top_k});
    EXPECT_EQ(rows[0], top_k > 1 ? 60 : 30) << top_k;
    EXPECT_GT(std::ranges::min(rows), 0) << top_k;
  }
}

TEST(MeasureWorkload, NamesAreReadBackAndOthersAreToldTheKnownOnes) {
  for (const Workload workload : kWorkloads) EXPECT_EQ(workload_named(name_of(workload)), workload);
  EXPECT_THROW(workload_named("hottest"), std::invalid_argument);
}

TEST(MeasureWorkload, HotRankLoadsTheFirstRankAtEveryEp) {
  const std::vector<Index> rows = rows_of(Workload::kHotRank, 0);
  for (const Index ep : {2, 4, 8}) {
    const std::vector<Index> ranks = rows_per_rank(rows, ep);
    EXPECT_EQ(std::ranges::max_element(ranks), ranks.begin()) << ep;
    EXPECT_GT(max_over_mean(ranks), ep == 2 ? 1.2 : 1.6) << ep;
  }
}

TEST(MeasureWorkload, SpreadHotHasTheSameHeatOnEveryRank) {
  const std::vector<Index> rows = rows_of(Workload::kSpreadHot, 0);
  EXPECT_GT(max_over_mean(rows), 2.5);
  EXPECT_NEAR(max_over_mean(rows), max_over_mean(rows_of(Workload::kHotRank, 0)), 0.3);
  EXPECT_LT(max_over_mean(rows_per_rank(rows, 2)), 1.1);
}

TEST(MeasureWorkload, RaggedSourcesGiveRanksTokensInProportionToTheirNumber) {
  std::vector<Index> counts;
  for (Index rank = 0; rank < 4; ++rank)
    counts.push_back(tokens_of_rank(Workload::kRaggedSources, 600, 4, rank).count);
  EXPECT_EQ(counts, (std::vector<Index>{0, 100, 200, 300}));
  EXPECT_EQ(tokens_of_rank(Workload::kRaggedSources, 600, 1, 0).count, 600);
  EXPECT_EQ(tokens_of_rank(Workload::kBalanced, 600, 4, 3).count, 150);
}

TEST(MeasureWorkload, ZeroLoadLeavesTheLastRankWithoutRowsAtEveryEp) {
  const std::vector<Index> rows = rows_of(Workload::kZeroLoad, 0);
  EXPECT_EQ(std::ranges::count(rows, 0), 8);
  for (const Index ep : {2, 4, 8, 16}) EXPECT_EQ(rows_per_rank(rows, ep).back(), 0) << ep;
}

TEST(MeasureWorkload, RotatingHotMovesItsBlockEveryStep) {
  std::set<std::ptrdiff_t> hottest;
  for (Index step = 0; step < 8; ++step) {
    const std::vector<Index> ranks = rows_per_rank(rows_of(Workload::kRotatingHot, step), 8);
    EXPECT_GT(max_over_mean(ranks), 2) << step;
    hottest.insert(std::ranges::max_element(ranks) - ranks.begin());
  }
  EXPECT_EQ(hottest.size(), 8u);
}

TEST(MeasureWorkload, BurstIsBalancedButForEveryFourthStep) {
  for (Index step = 0; step < 2 * kBurstPeriod; ++step) {
    const double load = max_over_mean(rows_of(Workload::kBurst, step));
    EXPECT_EQ(load, step % kBurstPeriod == kBurstPeriod - 1 ? 8 : 1) << step;
  }
}

TEST(MeasureWorkload, ThatCannotBeMadeSaysWhyWithItsArithmetic) {
  const WorkloadShape shape{.tokens = 8, .experts = 4, .top_k = 3};
  EXPECT_EQ(why_not(Workload::kZeroLoad, shape),
            "workload zero-load loads 2 of 4 experts, fewer than top-k = 3; choose top_k = 2 or less, or "
            "leave the workload out");
  EXPECT_EQ(why_not(Workload::kHotRank, shape), std::nullopt);
}

}  // namespace
}  // namespace moeloom
