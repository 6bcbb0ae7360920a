#include "plan/memory_changes.hpp"

#include "model/hf/weights/adapter.hpp"

#include <algorithm>

#include "made_up_job.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// With 16 sequences each.
PlannedJob job_of_two_ranks() {
  PlannedJob planned = testing::made_up_job(2, 2);
  planned.job.batch.sequences = 32;
  return planned;
}

std::vector<MemoryChange> changes_at(PlannedJob planned, Index ep) {
  planned.job = job_at(planned, ep);
  return memory_changes(planned, testing::made_up_rates(2));
}

bool changes(const MemoryChange& change, const Job& from, Index micro_batches, Index ep,
             Recompute recompute) {
  EXPECT_EQ(change.job.batch.sequences, from.batch.sequences);
  return change.job.batch.micro_batches == micro_batches && change.job.layout.mesh.ep == ep &&
         change.job.keeping.recompute == recompute && change.job.keeping.moments == from.keeping.moments &&
         change.job.keeping.masters == from.keeping.masters &&
         change.job.keeping.gradients == from.keeping.gradients;
}

TEST(MemoryChanges, AreOfOneSettingEachWithTheirPrices) {
  const PlannedJob planned = job_of_two_ranks();
  const Job job = job_at(planned, 1);
  const auto found = changes_at(planned, 1);
  ASSERT_EQ(found.size(), 8u);
  const auto has = [&](Index micro_batches, Index ep, Recompute recompute) {
    return std::ranges::any_of(
        found, [&](const MemoryChange& each) { return changes(each, job, micro_batches, ep, recompute); });
  };
  EXPECT_TRUE(has(2, 1, Recompute::kNone));
  EXPECT_TRUE(has(1, 2, Recompute::kNone));
  EXPECT_TRUE(has(1, 1, Recompute::kExperts));
  EXPECT_TRUE(has(1, 1, Recompute::kBlock));
  for (const MemoryChange& change : found) {
    EXPECT_LT(change.bytes, 0);
    EXPECT_GT(change.time, 0);
    if (change.job.keeping.recompute != Recompute::kNone) {
      EXPECT_GT(change.time, 1) << "work is done again";
    }
  }
  const auto moments = [&](MomentFormat format) {
    return std::ranges::count_if(
        found, [&](const MemoryChange& each) { return each.job.keeping.moments == format; });
  };
  EXPECT_EQ(moments(MomentFormat::kBf16), 1);
  EXPECT_EQ(moments(MomentFormat::kInt8), 1);
  EXPECT_EQ(
      std::ranges::count(found, Storage::kBf16, [](const auto& each) { return each.job.keeping.masters; }),
      1);
  EXPECT_EQ(
      std::ranges::count(found, Storage::kBf16, [](const auto& each) { return each.job.keeping.gradients; }),
      1);
  EXPECT_TRUE(std::ranges::is_sorted(found, {}, &MemoryChange::time));
}

TEST(MemoryChanges, MakingMoreAgainSavesMoreAndCostsMore) {
  const PlannedJob planned = job_of_two_ranks();
  const auto found = changes_at(planned, 2);
  const auto of = [&](Recompute recompute) {
    const auto it = std::ranges::find_if(
        found, [&](const MemoryChange& each) { return each.job.keeping.recompute == recompute; });
    EXPECT_NE(it, found.end());
    return *it;
  };
  EXPECT_LT(of(Recompute::kBlock).bytes, of(Recompute::kExperts).bytes);
  EXPECT_GT(of(Recompute::kBlock).time, of(Recompute::kExperts).time);
}

TEST(MemoryChanges, AnotherEpLiesOnItsNodesByItself) {
  PlannedJob planned = testing::made_up_job(6, 6);
  planned.config.num_experts = 6;
  planned.config.num_experts_per_tok = 2;
  planned.job = job_at(planned, 2);
  planned.job.exchange.dispatcher = DispatcherKind::kShared;
  const auto larger = [&](Index ep_per_node) {
    planned.job.layout.ep_per_node = ep_per_node;  // 2: as a run finds it
    const auto found = memory_changes(planned, testing::made_up_rates(6));
    const auto at_three =
        std::ranges::find(found, 3, [](const MemoryChange& each) { return each.job.layout.mesh.ep; });
    EXPECT_NE(at_three, found.end());
    return at_three == found.end() ? MemoryChange() : *at_three;
  };
  const MemoryChange as_run = larger(2), as_planned = larger(0);
  EXPECT_EQ(as_run.job.layout.ep_on_node(), 3);
  EXPECT_EQ(as_run.bytes, as_planned.bytes);
  EXPECT_EQ(as_run.time, as_planned.time);
}

TEST(MemoryChanges, ReplicasAreCounted) {
  PlannedJob planned = testing::made_up_job(4, 4);
  planned.job = job_at(planned, 2);
  const auto bytes_of_four = [&] {
    const auto found = memory_changes(planned, testing::made_up_rates(4));
    const auto at_four =
        std::ranges::find(found, 4, [](const MemoryChange& each) { return each.job.layout.mesh.ep; });
    EXPECT_NE(at_four, found.end());
    return at_four == found.end() ? 0 : at_four->bytes;
  };
  const double without = bytes_of_four();
  planned.job.exchange.rebalance = true;
  const auto replicas = [&](Index ep) {
    return replica_bytes(planned.config, parameters_at(planned, ep), job_at(planned, ep));
  };
  EXPECT_NE(replicas(4), replicas(2));
  EXPECT_DOUBLE_EQ(bytes_of_four(), without + replicas(4) - replicas(2));
}

TEST(MemoryChanges, ShardingDenseParametersSavesWithoutTime) {
  const PlannedJob planned = job_of_two_ranks();
  const auto found = changes_at(planned, 2);
  const auto sharded =
      std::ranges::find_if(found, [](const auto& each) { return each.job.keeping.shard_dense; });
  ASSERT_NE(sharded, found.end());
  EXPECT_EQ(sharded->time, 1);
}

/// Of a model whose experts rest in bf16 beside an adapter.
TEST(MemoryChanges, ADiskTakesFrozenExpertsAndNoOthers) {
  PlannedJob planned = job_of_two_ranks();
  planned.config.num_hidden_layers = 6;
  const auto on_disk = [](const MemoryChange& each) { return each.job.keeping.offloads(); };
  const auto found_for = [&] { return changes_at(planned, 2); };
  EXPECT_TRUE(std::ranges::none_of(found_for(), on_disk)) << "all is trained";
  planned.config.adapter = resolve_adapter(planned.config, {.rank = 2, .targets = {"attention"}});
  planned.config.adapter->base_stored = Storage::kBf16;
  const auto found = found_for();
  const auto change = std::ranges::find_if(found, on_disk);
  ASSERT_NE(change, found.end());
  const double layers = static_cast<double>(ParameterStore::disk_bytes(parameters_at(planned, 2)));
  EXPECT_DOUBLE_EQ(change->bytes, -layers * 4 / 6) << "two layers of six stay";
  EXPECT_EQ(change->time, 1);
}

TEST(MemoryChanges, WhatCannotBeIsLeftOut) {
  PlannedJob planned = job_of_two_ranks();
  planned.job.batch.sequences = 2;
  planned.job.keeping.recompute = Recompute::kBlock;
  planned.job.keeping.moments = MomentFormat::kInt8;
  planned.job.keeping.masters = Storage::kBf16;
  planned.job.keeping.gradients = Storage::kBf16;
  planned.job.keeping.shard_dense = true;
  EXPECT_TRUE(changes_at(planned, 2).empty())
      << "one sequence, the largest ep, the smallest moments and weights, and everything made again, "
         "dense parameters sharded";
  PlannedJob leaves = job_of_two_ranks();
  leaves.job.batch.exact = 16;
  for (const MemoryChange& change : changes_at(leaves, 2)) {
    EXPECT_EQ(change.job.batch.micro_batches, 1) << "a leaf of exact sums is not divided";
    EXPECT_FALSE(change.job.keeping.shard_dense) << "exact sums are whole on every rank";
    EXPECT_EQ(change.job.keeping.gradients, Storage::kFp32) << "exact sums are made of floats";
  }
}

}  // namespace
}  // namespace moeloom
