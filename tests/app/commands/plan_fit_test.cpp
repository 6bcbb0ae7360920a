#include "commands/plan_fit.hpp"

#include <algorithm>

#include "commands/plan_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

MachineRates rates_of_a_cluster() {
  MachineRates machine = testing::rates(2);
  machine.network_message_seconds = 1e-5;
  machine.network_bytes = 1e9;
  return machine;
}

/// 4 ranks on 2 nodes, 16 sequences each in one micro-batch; 8 experts.
PlanRequest request(double memory_per_node) {
  return {.config = {},
          .ranks = 4,
          .ranks_per_node = 2,
          .processors_per_node = 2,
          .memory_per_node = memory_per_node,
          .tokens = 4096,
          .sequence_length = 256,
          .gmm_budget_bytes = Index{4} << 30};
}

std::vector<PlanPoint> points(const PlanRequest& request) {
  const auto packed_is_faster = [](const GmmFacts&, const MeshShape&) {
    return GmmPrediction{.loop_seconds = 3e-3, .gmm_seconds = 2e-3, .packed_seconds = 1e-3};
  };
  return plan_points(request, rates_of_a_cluster(), known_ways(), packed_is_faster);
}

double least_node_bytes(const PlanRequest& request) {
  const std::vector<PlanPoint> all = points(request);
  const PlanPoint& least = smallest_point(all);
  return node_bytes(least.step, least.memory);
}

bool something_fits(const PlanRequest& request) {
  return std::ranges::any_of(points(request), &PlanPoint::fits);
}

TEST(PlanFit, TheSmallestPointIsNeitherTheFirstNorAPackedOne) {
  const std::vector<PlanPoint> all = points(request(1));
  const PlanPoint& least = smallest_point(all);
  EXPECT_LT(least.memory.total(), all.front().memory.total()) << "the fastest packs its experts";
  for (const PlanPoint& point : all) EXPECT_GE(point.memory.total(), least.memory.total());
  EXPECT_EQ(least.step.mesh.ep, 4) << "fewest experts a rank";
}

TEST(PlanFit, MicroBatchesComeBeforeRanksAndRanksBeforeNodes) {
  const auto with = [](Index ranks, Index per_node, Index tokens, Index micro_batches) {
    PlanRequest r = request(0);
    r.ranks = ranks;
    r.ranks_per_node = per_node;
    r.tokens = tokens;
    r.micro_batches = micro_batches;
    if (per_node == 1) r.threads = 2;
    return r;
  };
  struct Case {
    PlanRequest enough;  // whose smallest mesh the memory is just enough for
    const char* changed;
  };
  const Case cases[] = {{with(4, 2, 4096, 1), ""},
                        {with(4, 2, 4096, 2), "--accumulate 2"},
                        {with(4, 2, 4096, 16), "--accumulate 16"},
                        {with(2, 1, 8192, 32), "--ranks 2 --ranks-per-node 1 --tokens-per-rank 8192"},
                        {with(8, 1, 2048, 8), "--ranks 8 --ranks-per-node 1 --tokens-per-rank 2048"}};
  double memory_before = 1e18;
  for (const auto& [enough, changed] : cases) {
    const double memory = 1.02 * least_node_bytes(enough);
    ASSERT_LT(memory, memory_before) << changed << ": cases fall";
    memory_before = memory;
    const PlanRequest asked = request(memory);
    const auto fit = cheapest_fit(asked, known_ways());
    ASSERT_TRUE(fit) << changed;
    EXPECT_EQ(changed_options(asked, fit->request).substr(0, std::string(changed).size()), changed);
    EXPECT_EQ(fit->request.tokens * fit->request.ranks, asked.tokens * asked.ranks) << "the same batch";
    EXPECT_LE(node_bytes(fit->step, fit->memory), memory);
    EXPECT_TRUE(something_fits(fit->request)) << "as the plan of the changed job says, too";
  }
}

TEST(PlanFit, OfFittingMicroBatchesTheFewestAreTaken) {
  PlanRequest four = request(0);
  four.micro_batches = 4;
  PlanRequest two = request(0);
  two.micro_batches = 2;
  const double between = (least_node_bytes(four) + least_node_bytes(two)) / 2;
  const auto fit = cheapest_fit(request(between), known_ways());
  ASSERT_TRUE(fit);
  EXPECT_EQ(fit->request.micro_batches, 4);
  EXPECT_EQ(fit->request.ranks, 4);
}

TEST(PlanFit, NoneIsFoundWhereNotEvenOneSequenceAloneFits) {
  EXPECT_FALSE(cheapest_fit(request(1e6), known_ways()));
}

TEST(PlanFit, ADenseModelIsLaidOutToo) {
  PlanRequest dense = request(0);
  dense.config.num_experts = 0;
  dense.config.num_experts_per_tok = 0;
  dense.micro_batches = 16;
  dense.memory_per_node = 1.02 * least_node_bytes(dense);
  PlanRequest asked = dense;
  asked.micro_batches = 1;
  const auto fit = cheapest_fit(asked, known_ways());
  ASSERT_TRUE(fit);
  EXPECT_EQ(changed_options(asked, fit->request), "--accumulate 16");
}

TEST(PlanFit, TheAdviceNamesTheSmallestTheMemoryAndTheWayOut) {
  const PlanRequest asked = request(double(Index{64} << 30));
  PlanPoint smallest{
      .step = {.mesh = {1, 4, {"dp", "ep"}}, .ranks_per_node = 2, .way = DispatcherKind::kShared}};
  smallest.memory.activations = double(Index{58} << 30);
  const std::string nothing =
      "nothing fits: the smallest need is 58 GiB a rank (dp=1 ep=4, shared), 116 GiB for the 2 ranks of a "
      "node, which has 64 GiB\n";
  EXPECT_EQ(memory_advice(asked, smallest, std::nullopt),
            nothing +
                "no other layout of these tokens fits, down to one rank a node with one sequence at a time; "
                "as it is the job needs nodes of 116 GiB\n");
  FittingJob fit{.request = asked, .step = smallest.step, .memory = {}};
  fit.memory.activations = double(Index{30} << 30);
  fit.request.micro_batches = 16;
  EXPECT_EQ(memory_advice(asked, smallest, fit),
            nothing +
                "the cheapest change that fits, with the same tokens a step: --accumulate 16\n"
                "  30 GiB a rank (dp=1 ep=4, shared), 60 GiB for the 2 ranks of a node\n");
  fit.request.ranks_per_node = 1;
  fit.step.mesh.ep = 1;
  fit.step.mesh.dp = 4;
  fit.step.ranks_per_node = 1;
  EXPECT_EQ(memory_advice(asked, smallest, fit),
            nothing +
                "the cheapest change that fits, with the same tokens a step, on 4 nodes instead of 2: "
                "--ranks-per-node 1 --accumulate 16\n"
                "  30 GiB a rank (dp=4 ep=1), alone on its node\n"
                "as it is the job needs nodes of 116 GiB\n");
}

}  // namespace
}  // namespace moeloom
