#include "moeloom/plan/fit.hpp"

#include "moeloom/model/hf/adapter.hpp"

#include <algorithm>
#include <tuple>

#include "made_up_job.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// 4 ranks on 2 nodes, 16 sequences each in one micro-batch; 8 experts.
Job job(double memory_per_node) {
  Job job = testing::made_up_job(4, 2);
  job.memory_per_node = memory_per_node;
  job.tokens = 4096;
  return job;
}

/// The same with nothing left to save but by its layout.
Job saving_job(double memory_per_node) {
  Job saving = job(memory_per_node);
  saving.recompute = Recompute::kBlock;
  saving.moments = MomentFormat::kInt8;
  saving.gradients = Storage::kBf16;
  saving.shard_dense = true;
  return saving;
}

std::vector<PredictedPoint> points(const Job& job) {
  const auto packed_is_faster = [](const GmmFacts&, const MeshShape&) {
    return GmmPrediction{.loop_seconds = 3e-3, .gmm_seconds = 2e-3, .packed_seconds = 1e-3};
  };
  return predict_points(job, testing::made_up_rates(2, 1e9), packed_is_faster);
}

double least_node_bytes(const Job& job) {
  double least = 1e30;
  for (const PredictedPoint& point : points(job)) {
    // A fit holds in whatever number of chunks rows travel.
    StepCase step = point.step;
    if (way_of(step.kind).in_chunks && ep_on_node(step) < step.mesh.ep)
      step.chunks = job.config.num_experts / step.mesh.ep;
    const MemoryNeed need = step_memory(job.config, parameters_at(job, step.mesh.ep), step, false, job.dtype);
    least = std::min(least, node_memory_bytes(step, need));
  }
  return least;
}

bool something_fits(const Job& job) {
  return std::ranges::any_of(points(job), &PredictedPoint::fits);
}

/// "micro-batches 2": what differs, in the order in which it is changed.
std::string changed(const Job& before, const Job& after) {
  std::string text;
  const auto add = [&](const char* name, Index Job::*field) {
    if (before.*field != after.*field)
      text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(after.*field);
  };
  add("ranks", &Job::ranks);
  add("ranks a node", &Job::ranks_per_node);
  add("tokens", &Job::tokens);
  add("micro-batches", &Job::micro_batches);
  return text;
}

TEST(Fit, TheSmallestPointIsNeitherTheFirstNorAPackedOne) {
  const std::vector<PredictedPoint> all = points(job(1));
  const PredictedPoint& least = smallest_point(all);
  EXPECT_LT(least.memory.total(), all.front().memory.total()) << "the fastest packs its experts";
  for (const PredictedPoint& point : all) EXPECT_GE(point.memory.total(), least.memory.total());
  EXPECT_EQ(least.step.mesh.ep, 4) << "fewest experts a rank";
}

TEST(Fit, MicroBatchesComeBeforeRanksAndRanksBeforeNodes) {
  const auto with = [](Index ranks, Index per_node, Index tokens, Index micro_batches) {
    Job r = saving_job(0);
    r.ranks = ranks;
    r.ranks_per_node = per_node;
    r.tokens = tokens;
    r.micro_batches = micro_batches;
    if (per_node == 1) r.threads = 2;
    return r;
  };
  struct Case {
    Job enough;  // whose smallest mesh the memory is just enough for
    const char* change;
  };
  const Case cases[] = {{with(4, 2, 4096, 1), ""},
                        {with(4, 2, 4096, 2), "micro-batches 2"},
                        {with(4, 2, 4096, 16), "micro-batches 16"},
                        {with(2, 1, 8192, 32), "ranks 2, ranks a node 1, tokens 8192"},
                        {with(8, 1, 2048, 8), "ranks 8, ranks a node 1, tokens 2048"}};
  double memory_before = 1e18;
  for (const auto& [enough, change] : cases) {
    const double memory = 1.02 * least_node_bytes(enough);
    ASSERT_LT(memory, memory_before) << change << ": cases fall";
    memory_before = memory;
    const Job asked = saving_job(memory);
    const auto fit = cheapest_fit(asked);
    ASSERT_TRUE(fit) << change;
    EXPECT_EQ(changed(asked, fit->job).substr(0, std::string(change).size()), change);
    EXPECT_EQ(fit->job.tokens * fit->job.ranks, asked.tokens * asked.ranks) << "the same batch";
    EXPECT_LE(node_memory_bytes(fit->step, fit->memory), memory);
    EXPECT_TRUE(something_fits(fit->job)) << "as the plan of the changed job says, too";
  }
}

/// One sequence a rank, a rank a node: no other layout saves anything.
TEST(Fit, WhereNoLayoutFitsTimeIsSpentBeforeNumbersChange) {
  Job alone = testing::made_up_job(2, 1);
  alone.tokens = alone.sequence_length = 8192;
  const auto fit_of = [&](MomentFormat moments, Recompute recompute, Storage masters = Storage::kFp32) {
    Job enough = alone;
    enough.moments = moments;
    enough.recompute = recompute;
    enough.masters = enough.gradients = masters;
    Job asked = alone;
    asked.memory_per_node = 1.001 * least_node_bytes(enough);
    const auto fit = cheapest_fit(asked);
    EXPECT_TRUE(fit);
    return std::tuple(fit->job.moments, fit->job.recompute, fit->job.masters);
  };
  for (const Recompute recompute : kRecomputes)
    EXPECT_EQ(fit_of(MomentFormat::kFp32, recompute),
              std::tuple(MomentFormat::kFp32, recompute, Storage::kFp32));
  EXPECT_EQ(fit_of(MomentFormat::kBf16, Recompute::kBlock),
            std::tuple(MomentFormat::kBf16, Recompute::kBlock, Storage::kFp32));
  EXPECT_EQ(fit_of(MomentFormat::kInt8, Recompute::kBlock, Storage::kBf16),
            std::tuple(MomentFormat::kInt8, Recompute::kBlock, Storage::kBf16))
      << "weights are rounded last, after gradients";
}

/// As beside an adapter, one sequence a rank, with all else saved.
TEST(Fit, FrozenExpertsGoToADiskWhereNothingElseHelps) {
  Job alone = testing::made_up_job(2, 1);
  alone.tokens = alone.sequence_length = 1024;
  alone.config.num_hidden_layers = 6;
  alone.config.adapter = resolve_adapter(alone.config, {.rank = 2, .targets = {"attention"}});
  alone.config.adapter->base_stored = Storage::kBf16;
  alone.recompute = Recompute::kBlock;
  alone.moments = MomentFormat::kInt8;
  alone.shard_dense = true;
  for (const bool offload : {false, true}) {
    Job enough = alone;
    enough.offload = offload;
    Job asked = alone;
    asked.memory_per_node = 1.001 * least_node_bytes(enough);
    const auto fit = cheapest_fit(asked);
    ASSERT_TRUE(fit);
    EXPECT_EQ(fit->job.offload, offload);
    EXPECT_EQ(fit->step.offload, offload);
  }
}

TEST(Fit, AMicroBatchHoldsWholeLeavesOfExactSums) {
  Job asked = saving_job(0);
  asked.gradients = Storage::kFp32;
  asked.shard_dense = false;
  Job small = asked;
  small.micro_batches = 16;
  asked.memory_per_node = 1.02 * least_node_bytes(small);
  ASSERT_TRUE(cheapest_fit(asked));
  EXPECT_EQ(cheapest_fit(asked)->job.micro_batches, 16) << "of one sequence each";
  asked.exact = 4;
  if (const auto fit = cheapest_fit(asked)) {
    EXPECT_EQ(fit->job.tokens / fit->job.sequence_length / fit->job.micro_batches % 4, 0);
  }
  asked.memory_per_node = 1e12;
  ASSERT_TRUE(cheapest_fit(asked));
  asked.exact = 3;
  EXPECT_FALSE(cheapest_fit(asked)) << "3 do not divide 16";
}

TEST(Fit, OfFittingMicroBatchesTheFewestAreTaken) {
  Job four = job(0);
  four.micro_batches = 4;
  Job two = job(0);
  two.micro_batches = 2;
  const double between = (least_node_bytes(four) + least_node_bytes(two)) / 2;
  const auto fit = cheapest_fit(job(between));
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->job.micro_batches, 4);
  EXPECT_EQ(fit->job.ranks, 4);
}

TEST(Fit, NoneIsFoundWhereNotEvenOneSequenceAloneFits) {
  EXPECT_FALSE(cheapest_fit(job(1e6)));
}

TEST(Fit, ADenseModelIsLaidOutToo) {
  Job dense = job(0);
  dense.config.num_experts = 0;
  dense.config.num_experts_per_tok = 0;
  dense.micro_batches = 16;
  dense.memory_per_node = 1.02 * least_node_bytes(dense);
  Job asked = dense;
  asked.micro_batches = 1;
  const auto fit = cheapest_fit(asked);
  ASSERT_TRUE(fit);
  EXPECT_EQ(changed(asked, fit->job), "micro-batches 16");
}

TEST(Fit, RanksThatKeepTheirNodesAreBoundedEachByItself) {
  Job two = saving_job(0);
  two.micro_batches = 2;
  const double rank = 1.02 * least_node_bytes(two) / 2;
  const auto fit = cheapest_fit_of_ranks(saving_job(0), rank);  // whatever the node has
  ASSERT_TRUE(fit);
  EXPECT_EQ(changed(saving_job(0), fit->job), "micro-batches 2");
  EXPECT_LE(fit->memory.total(), rank);
  Job eight = saving_job(0);
  eight.ranks = 8;
  eight.tokens = 2048;
  eight.micro_batches = 8;
  const auto more = cheapest_fit_of_ranks(saving_job(0), 1.02 * least_node_bytes(eight) / 2);
  ASSERT_TRUE(more);
  EXPECT_EQ(changed(saving_job(0), more->job).substr(0, 8), "ranks 8,");
  EXPECT_EQ(more->job.ranks_per_node, 2);
}

TEST(Fit, WhatIsFrozenAsksForNoGradientsAndMoments) {
  Job frozen = job(0);
  for (const ParameterSpec& spec : parameters_at(frozen, 1)) frozen.frozen.insert(spec.name);
  const std::vector<PredictedPoint> all = points(frozen);
  for (const PredictedPoint& point : all) {
    EXPECT_EQ(point.memory.dense_gradients + point.memory.expert_gradients + point.memory.moments, 0);
    EXPECT_GT(point.memory.expert_weights, 0);
  }
}

TEST(Fit, HostsThatAreLeftTakeTheMostRanksThenTheFewestMicroBatchesThenTheNearestEp) {
  const Job asked = job(1e12);  // 64 sequences
  const auto on = [&](const Job& job, Index ep, std::vector<Index> slots) {
    const auto fit = fit_on_hosts(job, ep, slots);
    if (!fit) return std::string("none");
    EXPECT_EQ(fit->job.tokens * fit->job.ranks, job.tokens * job.ranks) << "the same batch";
    EXPECT_LE(node_memory_bytes(fit->step, fit->memory), job.memory_per_node);
    return std::to_string(fit->job.ranks) + " ranks, ep " + std::to_string(fit->step.mesh.ep) + ", " +
           std::to_string(fit->job.micro_batches);
  };
  EXPECT_EQ(on(asked, 2, {2, 2}), "4 ranks, ep 2, 1");
  EXPECT_EQ(on(asked, 4, {2}), "2 ranks, ep 2, 1");
  EXPECT_EQ(on(asked, 4, {2, 1}), "2 ranks, ep 2, 1") << "3 do not divide 64 sequences";
  EXPECT_EQ(on(asked, 8, {1}), "1 ranks, ep 1, 1");
  Job in_parts = asked;
  in_parts.micro_batches = 4;
  EXPECT_EQ(on(in_parts, 4, {2}), "2 ranks, ep 2, 4") << "as many as were asked for";
  Job tight = asked;
  const auto two = fit_on_hosts(asked, 2, std::vector<Index>{2});
  ASSERT_TRUE(two);
  tight.memory_per_node = 0.9 * node_memory_bytes(two->step, two->memory);
  EXPECT_EQ(on(tight, 2, {2}), "2 ranks, ep 2, 2") << "rather than one rank";
  tight.memory_per_node = 1;
  EXPECT_EQ(on(tight, 2, {2}), "none");
}

}  // namespace
}  // namespace moeloom
