#include "plan/fit.hpp"

#include "model/hf/weights/adapter.hpp"

#include <algorithm>
#include <tuple>

#include "made_up_job.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// 4 ranks on 2 nodes, 16 sequences each in one micro-batch; 8 experts.
PlannedJob planned(double memory_per_node) {
  PlannedJob planned = testing::made_up_job(4, 2);
  planned.memory_per_node = memory_per_node;
  planned.job.batch.sequences = 64;
  return planned;
}

/// The same with nothing left to save but by its layout.
PlannedJob saving_job(double memory_per_node) {
  PlannedJob saving = planned(memory_per_node);
  saving.job.keeping.recompute = Recompute::kBlock;
  saving.job.keeping.moments = MomentFormat::kInt8;
  saving.job.keeping.gradients = Storage::kBf16;
  saving.job.keeping.shard_dense = true;
  return saving;
}

std::vector<PredictedPoint> points(const PlannedJob& planned) {
  const auto packed_is_faster = [](const GmmFacts&, const MeshShape&) {
    return GmmPrediction{.loop_seconds = 3e-3, .gmm_seconds = 2e-3, .packed_seconds = 1e-3};
  };
  return predict_points(planned, testing::made_up_rates(2, 1e9), packed_is_faster);
}

double least_node_bytes(const PlannedJob& planned) {
  double least = 1e30;
  for (const PredictedPoint& point : points(planned)) {
    // A fit holds in whatever number of chunks rows travel.
    Job job = point.job;
    if (job.layout.ep_on_node() < job.layout.mesh.ep)
      job.exchange.chunks = planned.config.num_experts / job.layout.mesh.ep;
    const MemoryNeed need =
        step_memory(planned.config, parameters_at(planned, job.layout.mesh.ep), job, false, planned.dtype);
    least = std::min(least, node_memory_bytes(job, need));
  }
  return least;
}

bool something_fits(const PlannedJob& planned) {
  return std::ranges::any_of(points(planned), &PredictedPoint::fits);
}

/// "micro-batches 2": what differs, in the order in which it is changed.
std::string changed(const Job& before, const Job& after) {
  std::string text;
  const auto add = [&](const char* name, Index was, Index is) {
    if (was != is) text += (text.empty() ? "" : ", ") + std::string(name) + " " + std::to_string(is);
  };
  add("ranks", before.layout.mesh.world(), after.layout.mesh.world());
  add("ranks a node", before.layout.ranks_per_node, after.layout.ranks_per_node);
  add("micro-batches", before.batch.micro_batches, after.batch.micro_batches);
  return text;
}

TEST(Fit, TheSmallestPointIsNeitherTheFirstNorAPackedOne) {
  const std::vector<PredictedPoint> all = points(planned(1));
  const PredictedPoint& least = smallest_point(all);
  EXPECT_LT(least.memory.total(), all.front().memory.total()) << "the fastest packs its experts";
  for (const PredictedPoint& point : all) EXPECT_GE(point.memory.total(), least.memory.total());
  EXPECT_EQ(least.job.layout.mesh.ep, 4) << "fewest experts a rank";
}

TEST(Fit, AnotherMeshLiesOnItsNodesByItself) {
  PlannedJob run = testing::made_up_job(6, 6);
  run.config.num_experts = 6;
  run.config.num_experts_per_tok = 2;
  run.job = job_at(run, 2);
  const auto fit = cheapest_fit_of_ranks(run, 1e12);
  run.job.layout.ep_per_node = 2;  // as a run finds it
  const auto of_run = cheapest_fit_of_ranks(run, 1e12);
  ASSERT_TRUE(fit && of_run);
  EXPECT_EQ(of_run->job.layout.mesh.ep, fit->job.layout.mesh.ep);
  EXPECT_EQ(of_run->job.layout.ep_on_node(), of_run->job.layout.mesh.ep);
  EXPECT_EQ(of_run->memory.total(), fit->memory.total());
}

TEST(Fit, ReplicasAreCounted) {
  PlannedJob run = saving_job(0);
  const auto plain = cheapest_fit_of_ranks(run, 1e12);
  ASSERT_TRUE(plain);
  ASSERT_GT(plain->job.layout.mesh.ep, 1);
  const double room = plain->memory.total();
  run.job.exchange.rebalance = true;
  const auto roomy = cheapest_fit_of_ranks(run, 1e12);
  ASSERT_TRUE(roomy);
  EXPECT_EQ(roomy->memory.replicas,
            replica_bytes(run.config, parameters_at(run, roomy->job.layout.mesh.ep), roomy->job));
  if (const auto fit = cheapest_fit_of_ranks(run, room)) {
    const auto specs = parameters_at(run, fit->job.layout.mesh.ep);
    EXPECT_LE(step_memory(run.config, specs, fit->job, false, run.dtype).total() +
                  replica_bytes(run.config, specs, fit->job),
              room);
  }
}

TEST(Fit, MicroBatchesComeBeforeRanksAndRanksBeforeNodes) {
  const auto with = [](Index ranks, Index per_node, Index micro_batches) {
    PlannedJob r = saving_job(0);
    r.job.layout.mesh.dp = ranks;
    r.job.layout.ranks_per_node = per_node;
    r.job.batch.micro_batches = micro_batches;
    if (per_node == 1) r.job.layout.threads = 2;
    return r;
  };
  struct Case {
    PlannedJob enough;  // whose smallest mesh the memory is just enough for
    const char* change;
  };
  const Case cases[] = {{with(4, 2, 1), ""},
                        {with(4, 2, 2), "micro-batches 2"},
                        {with(4, 2, 16), "micro-batches 16"},
                        {with(2, 1, 32), "ranks 2, ranks a node 1"},
                        {with(8, 1, 8), "ranks 8, ranks a node 1"}};
  double memory_before = 1e18;
  for (const auto& [enough, change] : cases) {
    const double memory = 1.02 * least_node_bytes(enough);
    ASSERT_LT(memory, memory_before) << change << ": cases fall";
    memory_before = memory;
    const PlannedJob asked = saving_job(memory);
    const auto fit = cheapest_fit(asked);
    ASSERT_TRUE(fit) << change;
    EXPECT_EQ(changed(asked.job, fit->job).substr(0, std::string(change).size()), change);
    EXPECT_EQ(fit->job.batch.sequences, asked.job.batch.sequences) << "the same batch";
    EXPECT_LE(node_memory_bytes(fit->job, fit->memory), memory);
    PlannedJob again = asked;
    again.job = fit->job;
    EXPECT_TRUE(something_fits(again)) << "as the plan of the changed job says, too";
  }
}

/// One sequence a rank, a rank a node: no other layout saves anything.
TEST(Fit, WhereNoLayoutFitsTimeIsSpentBeforeNumbersChange) {
  PlannedJob alone = testing::made_up_job(2, 1);
  alone.job.batch = {.sequences = 2, .length = 8192};
  const auto fit_of = [&](MomentFormat moments, Recompute recompute, Storage masters = Storage::kFp32) {
    PlannedJob enough = alone;
    enough.job.keeping.moments = moments;
    enough.job.keeping.recompute = recompute;
    enough.job.keeping.masters = enough.job.keeping.gradients = masters;
    PlannedJob asked = alone;
    asked.memory_per_node = 1.001 * least_node_bytes(enough);
    const auto fit = cheapest_fit(asked);
    EXPECT_TRUE(fit);
    return std::tuple(fit->job.keeping.moments, fit->job.keeping.recompute, fit->job.keeping.masters);
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
  PlannedJob alone = testing::made_up_job(2, 1);
  alone.job.batch = {.sequences = 2, .length = 1024};
  alone.config.num_hidden_layers = 6;
  alone.config.adapter = resolve_adapter(alone.config, {.rank = 2, .targets = {"attention"}});
  alone.config.adapter->base_stored = Storage::kBf16;
  alone.job.keeping.recompute = Recompute::kBlock;
  alone.job.keeping.moments = MomentFormat::kInt8;
  alone.job.keeping.shard_dense = true;
  for (const bool offload : {false, true}) {
    PlannedJob enough = alone;
    enough.job.keeping.offload = offload ? "DIR" : "";
    PlannedJob asked = alone;
    asked.memory_per_node = 1.001 * least_node_bytes(enough);
    const auto fit = cheapest_fit(asked);
    ASSERT_TRUE(fit);
    EXPECT_EQ(fit->job.keeping.offloads(), offload);
  }
}

TEST(Fit, AMicroBatchHoldsWholeLeavesOfExactSums) {
  PlannedJob asked = saving_job(0);
  asked.job.keeping.gradients = Storage::kFp32;
  asked.job.keeping.shard_dense = false;
  PlannedJob small = asked;
  small.job.batch.micro_batches = 16;
  asked.memory_per_node = 1.02 * least_node_bytes(small);
  ASSERT_TRUE(cheapest_fit(asked));
  EXPECT_EQ(cheapest_fit(asked)->job.batch.micro_batches, 16) << "of one sequence each";
  asked.job.batch.exact = 4;
  if (const auto fit = cheapest_fit(asked)) {
    EXPECT_EQ(fit->job.sequences() % 4, 0);
  }
  asked.memory_per_node = 1e12;
  ASSERT_TRUE(cheapest_fit(asked));
  asked.job.batch.exact = 3;
  EXPECT_FALSE(cheapest_fit(asked)) << "3 do not divide 16";
}

TEST(Fit, OfFittingMicroBatchesTheFewestAreTaken) {
  PlannedJob four = planned(0);
  four.job.batch.micro_batches = 4;
  PlannedJob two = planned(0);
  two.job.batch.micro_batches = 2;
  const double between = (least_node_bytes(four) + least_node_bytes(two)) / 2;
  const auto fit = cheapest_fit(planned(between));
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->job.batch.micro_batches, 4);
  EXPECT_EQ(fit->job.layout.mesh.world(), 4);
}

TEST(Fit, NoneIsFoundWhereNotEvenOneSequenceAloneFits) {
  EXPECT_FALSE(cheapest_fit(planned(1e6)));
}

TEST(Fit, ADenseModelIsLaidOutToo) {
  PlannedJob dense = planned(0);
  dense.config.num_experts = 0;
  dense.config.num_experts_per_tok = 0;
  dense.job.batch.micro_batches = 16;
  dense.memory_per_node = 1.02 * least_node_bytes(dense);
  PlannedJob asked = dense;
  asked.job.batch.micro_batches = 1;
  const auto fit = cheapest_fit(asked);
  ASSERT_TRUE(fit);
  EXPECT_EQ(changed(asked.job, fit->job), "micro-batches 16");
}

TEST(Fit, RanksThatKeepTheirNodesAreBoundedEachByItself) {
  PlannedJob two = saving_job(0);
  two.job.batch.micro_batches = 2;
  const double rank = 1.02 * least_node_bytes(two) / 2;
  const auto fit = cheapest_fit_of_ranks(saving_job(0), rank);  // whatever the node has
  ASSERT_TRUE(fit);
  EXPECT_EQ(changed(saving_job(0).job, fit->job), "micro-batches 2");
  EXPECT_LE(fit->memory.total(), rank);
  PlannedJob eight = saving_job(0);
  eight.job.layout.mesh.dp = 8;
  eight.job.batch.micro_batches = 8;
  const auto more = cheapest_fit_of_ranks(saving_job(0), 1.02 * least_node_bytes(eight) / 2);
  ASSERT_TRUE(more);
  EXPECT_EQ(changed(saving_job(0).job, more->job).substr(0, 8), "ranks 8,");
  EXPECT_EQ(more->job.layout.ranks_per_node, 2);
}

TEST(Fit, WhatIsFrozenAsksForNoGradientsAndMoments) {
  PlannedJob frozen = planned(0);
  for (const ParameterSpec& spec : parameters_at(frozen, 1)) frozen.frozen.insert(spec.name);
  const std::vector<PredictedPoint> all = points(frozen);
  for (const PredictedPoint& point : all) {
    EXPECT_EQ(point.memory.dense_gradients + point.memory.expert_gradients + point.memory.moments, 0);
    EXPECT_GT(point.memory.expert_weights, 0);
  }
}

TEST(Fit, HostsThatAreLeftTakeTheMostRanksThenTheFewestMicroBatchesThenTheNearestEp) {
  const PlannedJob asked = planned(1e12);  // 64 sequences
  const auto on = [&](const PlannedJob& planned, Index ep, std::vector<Index> slots) {
    const auto fit = fit_on_hosts(planned, ep, slots);
    if (!fit) return std::string("none");
    EXPECT_EQ(fit->job.batch.sequences, planned.job.batch.sequences) << "the same batch";
    EXPECT_LE(node_memory_bytes(fit->job, fit->memory), planned.memory_per_node);
    return std::to_string(fit->job.layout.mesh.world()) + " ranks, ep " +
           std::to_string(fit->job.layout.mesh.ep) + ", " + std::to_string(fit->job.batch.micro_batches);
  };
  EXPECT_EQ(on(asked, 2, {2, 2}), "4 ranks, ep 2, 1");
  EXPECT_EQ(on(asked, 4, {2}), "2 ranks, ep 2, 1");
  EXPECT_EQ(on(asked, 4, {2, 1}), "2 ranks, ep 2, 1") << "3 do not divide 64 sequences";
  EXPECT_EQ(on(asked, 8, {1}), "1 ranks, ep 1, 1");
  PlannedJob in_parts = asked;
  in_parts.job.batch.micro_batches = 4;
  EXPECT_EQ(on(in_parts, 4, {2}), "2 ranks, ep 2, 4") << "as many as were asked for";
  PlannedJob tight = asked;
  const auto two = fit_on_hosts(asked, 2, std::vector<Index>{2});
  ASSERT_TRUE(two);
  tight.memory_per_node = 0.9 * node_memory_bytes(two->job, two->memory);
  EXPECT_EQ(on(tight, 2, {2}), "2 ranks, ep 2, 2") << "rather than one rank";
  tight.memory_per_node = 1;
  EXPECT_EQ(on(tight, 2, {2}), "none");
}

}  // namespace
}  // namespace moeloom
