#include "moeloom/plan/memory_changes.hpp"

#include "moeloom/model/hf/adapter.hpp"

#include <algorithm>

#include "made_up_job.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

Job job_of_two_ranks() {
  Job job = testing::made_up_job(2, 2);
  job.tokens = 4096;
  return job;
}

StepCase step_of(const Job& job, Index ep) {
  StepCase step = step_at(job, ep);
  step.kind = DispatcherKind::kAlltoall;
  return step;
}

bool changes(const MemoryChange& change, const StepCase& from, Index micro_batches, Index ep,
             Recompute recompute) {
  EXPECT_EQ(change.step.tokens * change.step.micro_batches, from.tokens * from.micro_batches);
  return change.step.micro_batches == micro_batches && change.step.mesh.ep == ep &&
         change.step.recompute == recompute && change.step.moments == from.moments &&
         change.step.masters == from.masters && change.step.gradients == from.gradients;
}

TEST(MemoryChanges, AreOfOneSettingEachWithTheirPrices) {
  const Job job = job_of_two_ranks();
  const StepCase step = step_of(job, 1);
  const auto found = memory_changes(job, step, testing::made_up_rates(2));
  ASSERT_EQ(found.size(), 8u);
  const auto has = [&](Index micro_batches, Index ep, Recompute recompute) {
    return std::ranges::any_of(
        found, [&](const MemoryChange& each) { return changes(each, step, micro_batches, ep, recompute); });
  };
  EXPECT_TRUE(has(2, 1, Recompute::kNone));
  EXPECT_TRUE(has(1, 2, Recompute::kNone));
  EXPECT_TRUE(has(1, 1, Recompute::kExperts));
  EXPECT_TRUE(has(1, 1, Recompute::kBlock));
  for (const MemoryChange& change : found) {
    EXPECT_LT(change.bytes, 0);
    EXPECT_GT(change.time, 0);
    if (change.step.recompute != Recompute::kNone) {
      EXPECT_GT(change.time, 1) << "work is done again";
    }
  }
  const auto moments = [&](MomentFormat format) {
    return std::ranges::count_if(found,
                                 [&](const MemoryChange& each) { return each.step.moments == format; });
  };
  EXPECT_EQ(moments(MomentFormat::kBf16), 1);
  EXPECT_EQ(moments(MomentFormat::kInt8), 1);
  EXPECT_EQ(std::ranges::count(found, Storage::kBf16, [](const auto& each) { return each.step.masters; }), 1);
  EXPECT_EQ(std::ranges::count(found, Storage::kBf16, [](const auto& each) { return each.step.gradients; }),
            1);
  EXPECT_TRUE(std::ranges::is_sorted(found, {}, &MemoryChange::time));
}

TEST(MemoryChanges, MakingMoreAgainSavesMoreAndCostsMore) {
  const Job job = job_of_two_ranks();
  const auto found = memory_changes(job, step_of(job, 2), testing::made_up_rates(2));
  const auto of = [&](Recompute recompute) {
    const auto it = std::ranges::find_if(
        found, [&](const MemoryChange& each) { return each.step.recompute == recompute; });
    EXPECT_NE(it, found.end());
    return *it;
  };
  EXPECT_LT(of(Recompute::kBlock).bytes, of(Recompute::kExperts).bytes);
  EXPECT_GT(of(Recompute::kBlock).time, of(Recompute::kExperts).time);
}

TEST(MemoryChanges, ShardingDenseParametersSavesWithoutTime) {
  const Job job = job_of_two_ranks();
  const auto found = memory_changes(job, step_of(job, 2), testing::made_up_rates(2));
  const auto sharded = std::ranges::find_if(found, [](const auto& each) { return each.step.shard_dense; });
  ASSERT_NE(sharded, found.end());
  EXPECT_EQ(sharded->time, 1);
}

/// Of a model whose experts rest in bf16 beside an adapter.
TEST(MemoryChanges, ADiskTakesFrozenExpertsAndNoOthers) {
  Job job = job_of_two_ranks();
  job.config.num_hidden_layers = 6;
  const auto on_disk = [](const MemoryChange& each) { return each.step.offload; };
  const auto found_for = [&] { return memory_changes(job, step_of(job, 2), testing::made_up_rates(2)); };
  EXPECT_TRUE(std::ranges::none_of(found_for(), on_disk)) << "all is trained";
  job.config.adapter = resolve_adapter(job.config, {.rank = 2, .targets = {"attention"}});
  job.config.adapter->base_stored = Storage::kBf16;
  const auto found = found_for();
  const auto change = std::ranges::find_if(found, on_disk);
  ASSERT_NE(change, found.end());
  const double layers = static_cast<double>(ParameterStore::disk_bytes(parameters_at(job, 2)));
  EXPECT_DOUBLE_EQ(change->bytes, -layers * 4 / 6) << "two layers of six stay";
  EXPECT_EQ(change->time, 1);
}

TEST(MemoryChanges, WhatCannotBeIsLeftOut) {
  Job job = job_of_two_ranks();
  job.tokens = job.sequence_length;
  job.recompute = Recompute::kBlock;
  job.moments = MomentFormat::kInt8;
  job.masters = Storage::kBf16;
  job.gradients = Storage::kBf16;
  job.shard_dense = true;
  EXPECT_TRUE(memory_changes(job, step_of(job, 2), testing::made_up_rates(2)).empty())
      << "one sequence, the largest ep, the smallest moments and weights, and everything made again, "
         "dense parameters sharded";
  StepCase leaves = step_of(job_of_two_ranks(), 2);
  leaves.exact = leaves.tokens / leaves.sequence_length;
  for (const MemoryChange& change : memory_changes(job_of_two_ranks(), leaves, testing::made_up_rates(2))) {
    EXPECT_EQ(change.step.micro_batches, 1) << "a leaf of exact sums is not divided";
    EXPECT_FALSE(change.step.shard_dense) << "exact sums are whole on every rank";
    EXPECT_EQ(change.step.gradients, Storage::kFp32) << "exact sums are made of floats";
  }
}

}  // namespace
}  // namespace moeloom
