#include "plan/predict.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "made_up_job.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::made_up_job;
using testing::made_up_rates;

constexpr std::array kAlltoall = {DispatcherKind::kAlltoall};
constexpr std::array kTwoWays = {DispatcherKind::kAlltoall, DispatcherKind::kShared};

GmmPrediction grouped_is_faster(const GmmFacts&, const MeshShape&) {
  return {.loop_seconds = 2e-3, .gmm_seconds = 1e-3, .packed_seconds = 3e-3};
}

TEST(Predict, HasEveryMeshThatRunsWithEveryDispatcherThatCan) {
  MachineRates machine = made_up_rates(2);
  machine.network_bytes_per_second = 1e9;
  const auto points = predict_points(made_up_job(16, 4), machine, grouped_is_faster, kTwoWays);
  std::set<std::pair<Index, DispatcherKind>> seen;
  for (const PredictedPoint& p : points) {
    EXPECT_EQ(p.job.layout.mesh.world(), 16);
    seen.insert({p.job.layout.mesh.ep, p.job.exchange.dispatcher});
  }
  const std::set<std::pair<Index, DispatcherKind>> expected = {
      {1, DispatcherKind::kAlltoall}, {2, DispatcherKind::kAlltoall}, {2, DispatcherKind::kShared},
      {4, DispatcherKind::kAlltoall}, {4, DispatcherKind::kShared},   {8, DispatcherKind::kAlltoall}};
  EXPECT_EQ(seen, expected) << "8 experts; 8 ranks of ep lie on two nodes, which share no memory";
  EXPECT_EQ(points.size(), 2 * expected.size()) << "loop and grouped";
}

TEST(Predict, RowsTravelInChunksWhereExpertsHideThem) {
  MachineRates machine = made_up_rates(2);
  machine.network_bytes_per_second = 1e8;
  const auto products = [](const GmmFacts&, const MeshShape&) {
    return GmmPrediction{.loop_seconds = 2e-3, .gmm_seconds = 9e-3, .packed_seconds = 9e-3};
  };
  std::map<DispatcherKind, double> whole, in_chunks;  // bytes on the wire
  for (const PredictedPoint& p : predict_points(made_up_job(4, 2), machine, products)) {
    const bool crosses = p.job.layout.mesh.ep == 4;
    EXPECT_EQ(p.job.exchange.chunks, crosses && p.grouped ? 2 : 0)
        << "of the 2 experts of a rank, behind 9 ms";
    const std::string kind(name_of(p.job.exchange.dispatcher));
    EXPECT_EQ(dispatcher_text(p), p.job.layout.mesh.ep == 1   ? "-"
                                  : p.job.exchange.chunks > 0 ? kind + " in 2"
                                                              : kind);
    if (crosses) (p.job.exchange.chunks > 0 ? in_chunks : whole)[p.job.exchange.dispatcher] = p.message_bytes;
  }
  ASSERT_EQ(in_chunks.size(), 2u) << "alltoall and hierarchical";
  for (const auto& [kind, bytes] : in_chunks)
    EXPECT_GT(bytes, whole[kind]) << name_of(kind) << ": where experts are cut travels too";
}

TEST(Predict, NothingTravelsUnderProductsWhereOverlapIsOff) {
  MachineRates machine = made_up_rates(2);
  machine.network_bytes_per_second = 1e8;
  const auto products = [](const GmmFacts&, const MeshShape&) {
    return GmmPrediction{.loop_seconds = 9e-3, .gmm_seconds = 9e-3, .packed_seconds = 9e-3};
  };
  PlannedJob planned = made_up_job(4, 1);
  const auto travelling = [&](auto what) {
    Index points = 0;
    for (const PredictedPoint& p : predict_points(planned, machine, products)) points += what(p.job) ? 1 : 0;
    return points;
  };
  const auto rows = [](const Job& job) { return job.exchange.chunks > 0; };
  const auto sums = [](const Job& job) { return job.exchange.overlap_reduce; };
  const auto weights = [](const Job& job) { return job.exchange.overlap_gather; };
  EXPECT_TRUE(travelling(rows) > 0 && travelling(sums) > 0 && travelling(weights) > 0);
  planned.overlap = false;
  EXPECT_EQ(travelling(rows) + travelling(sums) + travelling(weights), 0);
  planned.job.keeping.shard_dense = true;
  EXPECT_GT(travelling(sums), 0) << "shard dense takes them as layers finish, whatever is asked";
  EXPECT_EQ(travelling(rows) + travelling(weights), 0);
}

TEST(Predict, TheFastestComesFirstAndWhatDoesNotFitLast) {
  PlannedJob small = made_up_job(4, 4);
  const auto points = predict_points(small, made_up_rates(4), grouped_is_faster, kAlltoall);
  for (std::size_t i = 1; i < points.size(); ++i)
    EXPECT_LE(points[i - 1].step_seconds(), points[i].step_seconds());
  EXPECT_TRUE(points.front().grouped);
  EXPECT_DOUBLE_EQ(points.front().tokens_per_second(), 4 * 1024 / points.front().step_seconds());
  const auto by_memory = [](const PredictedPoint& p) { return p.memory.total(); };
  const double least = by_memory(*std::ranges::min_element(points, {}, by_memory));
  small.memory_per_node = 4 * least;
  const auto tight = predict_points(small, made_up_rates(4), grouped_is_faster, kAlltoall);
  EXPECT_TRUE(tight.front().fits);
  EXPECT_FALSE(tight.back().fits);
  EXPECT_TRUE(std::ranges::is_partitioned(tight, &PredictedPoint::fits));
}

TEST(Predict, PacksAsTrainDoesUnasked) {
  const auto packed = [](const GmmFacts&, const MeshShape&) {
    return GmmPrediction{.loop_seconds = 3e-3, .gmm_seconds = 2e-3, .packed_seconds = 1e-3};
  };
  PlannedJob r = made_up_job(1, 1);
  EXPECT_EQ(gmm_text(predict_points(r, made_up_rates(1), packed, kAlltoall).front()), "gmm")
      << "one micro-batch a step, whatever is predicted";
  r.job.batch.micro_batches = 4;
  const auto points = predict_points(r, made_up_rates(1), packed, kAlltoall);
  EXPECT_EQ(gmm_text(points.front()), "gmm, packed");
  EXPECT_GT(points.front().memory.packed, 0);
  EXPECT_EQ(gmm_text(points.back()), "loop");
  EXPECT_EQ(points.back().memory.packed, 0);
  PlannedJob without_budget = r;
  without_budget.gmm_budget_bytes = 0;
  EXPECT_EQ(gmm_text(predict_points(without_budget, made_up_rates(1), packed, kAlltoall).front()), "gmm");
}

TEST(Predict, ADenseModelHasOneMesh) {
  PlannedJob dense = made_up_job(4, 4);
  dense.config.num_experts = 0;
  dense.config.num_experts_per_tok = 0;
  const auto points = predict_points(dense, made_up_rates(4), grouped_is_faster);
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points.front().job.layout.mesh.ep, 1);
}

TEST(Predict, TheBottleneckIsTheLargestPart) {
  PhaseSeconds seconds{};
  seconds[static_cast<std::size_t>(Phase::kExperts)] = 3;
  seconds[static_cast<std::size_t>(Phase::kDispatch)] = 2;
  seconds[static_cast<std::size_t>(Phase::kCombine)] = 2;
  seconds[static_cast<std::size_t>(Phase::kLoss)] = 1;
  EXPECT_EQ(bottleneck(seconds), "exchange 50 %");
}

TEST(Predict, BusyRanksAreThoseThatHaveProcessors) {
  PlannedJob planned = made_up_job(16, 8);
  EXPECT_EQ(busy_node_ranks(planned), 8);
  planned.job.layout.threads = 4;
  EXPECT_EQ(busy_node_ranks(planned), 2);
  planned.job.layout.threads = 16;
  EXPECT_EQ(busy_node_ranks(planned), 1);
  planned = made_up_job(4, 8);
  EXPECT_EQ(busy_node_ranks(planned), 4) << "a job of part of a node";
}

}  // namespace
}  // namespace moeloom
