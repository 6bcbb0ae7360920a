// What cannot be had together, as decide() and who makes a state are told it.
#include "moeloom/train/conflicts.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Conflicts, NothingIsSaidOfAnOrdinaryJob) {
  EXPECT_TRUE(conflicts({}, {}, 0).empty());
  EXPECT_TRUE(conflicts({}, {}, 5).empty()) << "slices alone";
}

TEST(Conflicts, ExactSumsNameAllThatAddsInAnOrderOfItsOwn) {
  Job job;
  job.batch.exact = 2;
  EXPECT_TRUE(conflicts(job, {}, 0).empty());
  job.exchange = {.combine = CombineMode::kFast,
                  .wire = WireDType::kBf16,
                  .node_pool = true,
                  .rebalance = true,
                  .replace_every = 3};
  job.keeping.shard_dense = true;
  job.keeping.gradients = Storage::kBf16;
  const auto found = conflicts(job, {}, 7);
  ASSERT_EQ(found.size(), 7u) << "experts that move add in the same order";
  for (const std::string& sentence : found) {
    EXPECT_TRUE(sentence.starts_with("exact sums = 2 cannot be had with ")) << sentence;
    EXPECT_TRUE(sentence.ends_with("; remove one")) << sentence;
  }
}

TEST(Conflicts, WhatOtherRanksWouldLeaveOutOfExperts) {
  const auto of_experts = [](auto change) {
    ParameterSpec spec;
    spec.placement = Placement::kExperts;
    change(spec);
    return std::vector{spec};
  };
  const auto halves = of_experts([](ParameterSpec& spec) { spec.gradient = Storage::kBf16; });
  const auto stored = of_experts([](ParameterSpec& spec) { spec.stored = Storage::kBf16; });
  const auto drops =
      of_experts([](ParameterSpec& spec) { spec.adapter = AdapterRole{.base = "w", .dropout = 0.1}; });
  Job pool, rebalance;
  pool.exchange.node_pool = true;
  rebalance.exchange.rebalance = true;
  EXPECT_EQ(conflicts(pool, halves, 0).size(), 1u);
  EXPECT_EQ(conflicts(rebalance, halves, 0).size(), 1u);
  EXPECT_EQ(conflicts(pool, stored, 0).size(), 0u) << "read where they lie";
  EXPECT_EQ(conflicts(rebalance, stored, 0).size(), 1u);
  EXPECT_EQ(conflicts(pool, drops, 0).size(), 1u);
  EXPECT_EQ(conflicts(rebalance, drops, 0).size(), 1u);
  pool.keeping.offload = "/disk";
  EXPECT_EQ(conflicts(pool, {}, 0).size(), 1u);
  for (ParameterSpec dense : {halves.front(), stored.front(), drops.front()}) {
    dense.placement = Placement::kWorld;
    EXPECT_TRUE(conflicts(rebalance, {dense}, 0).empty());
  }
}

}  // namespace
}  // namespace moeloom
