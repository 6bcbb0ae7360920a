#include "commands/step_plan.hpp"

#include <algorithm>
#include <set>

#include "commands/plan_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::rates;

PlanRequest request(Index ranks, Index per_node) {
  return {.config = {},
          .ranks = ranks,
          .ranks_per_node = per_node,
          .processors_per_node = per_node,
          .memory_per_node = 64e9,
          .tokens = 1024,
          .sequence_length = 256,
          .gmm_budget_bytes = Index{4} << 30};
}

GmmPrediction grouped_is_faster(const GmmFacts&, const MeshShape&) {
  return {.loop_seconds = 2e-3, .gmm_seconds = 1e-3, .packed_seconds = 3e-3};
}

TEST(StepPlan, HasEveryMeshThatRunsWithEveryDispatcherThatCan) {
  MachineRates machine = rates(2);
  machine.network_bytes = 1e9;
  const auto points = plan_points(request(16, 4), machine,
                                  {DispatcherKind::kAlltoall, DispatcherKind::kShared}, grouped_is_faster);
  std::set<std::pair<Index, DispatcherKind>> seen;
  for (const PlanPoint& p : points) {
    EXPECT_EQ(p.step.mesh.world(), 16);
    seen.insert({p.step.mesh.ep, p.step.way});
  }
  const std::set<std::pair<Index, DispatcherKind>> expected = {
      {1, DispatcherKind::kAlltoall}, {2, DispatcherKind::kAlltoall}, {2, DispatcherKind::kShared},
      {4, DispatcherKind::kAlltoall}, {4, DispatcherKind::kShared},   {8, DispatcherKind::kAlltoall}};
  EXPECT_EQ(seen, expected) << "8 experts; 8 ranks of ep lie on two nodes, which share no memory";
  EXPECT_EQ(points.size(), 2 * expected.size()) << "loop and grouped";
}

TEST(StepPlan, RowsTravelInChunksWhereExpertsHideThem) {
  MachineRates machine = rates(2);
  machine.network_bytes = 1e8;
  const auto products = [](const GmmFacts&, const MeshShape&) {
    return GmmPrediction{.loop_seconds = 2e-3, .gmm_seconds = 9e-3, .packed_seconds = 9e-3};
  };
  double whole = 0, in_chunks = 0;  // bytes on the wire
  for (const PlanPoint& p : plan_points(request(4, 2), machine, known_ways(), products)) {
    const bool crosses = p.step.mesh.ep == 4 && p.step.way == DispatcherKind::kAlltoall;
    EXPECT_EQ(p.step.chunks, crosses && p.grouped ? 2 : 0) << "of the 2 experts of a rank, behind 9 ms";
    const std::string way(name_of(p.step.way));
    EXPECT_EQ(dispatcher_text(p), p.step.mesh.ep == 1 ? "-" : p.step.chunks > 0 ? way + " in 2" : way);
    if (crosses) (p.step.chunks > 0 ? in_chunks : whole) = p.message_bytes;
  }
  EXPECT_GT(in_chunks, whole) << "a number travels beside each row, both ways, and where experts are cut";
}

TEST(StepPlan, TheFastestComesFirstAndWhatDoesNotFitLast) {
  PlanRequest small = request(4, 4);
  const auto points = plan_points(small, rates(4), {DispatcherKind::kAlltoall}, grouped_is_faster);
  for (std::size_t i = 1; i < points.size(); ++i)
    EXPECT_LE(points[i - 1].step_seconds(), points[i].step_seconds());
  EXPECT_TRUE(points.front().grouped);
  EXPECT_DOUBLE_EQ(points.front().tokens_per_second(), 4 * 1024 / points.front().step_seconds());
  const auto by_memory = [](const PlanPoint& p) { return p.memory.total(); };
  const double least = by_memory(*std::ranges::min_element(points, {}, by_memory));
  small.memory_per_node = 4 * least;
  const auto tight = plan_points(small, rates(4), {DispatcherKind::kAlltoall}, grouped_is_faster);
  EXPECT_TRUE(tight.front().fits);
  EXPECT_FALSE(tight.back().fits);
  EXPECT_TRUE(std::ranges::is_partitioned(tight, &PlanPoint::fits));
}

TEST(StepPlan, PacksAsTrainDoesUnasked) {
  const auto packed = [](const GmmFacts&, const MeshShape&) {
    return GmmPrediction{.loop_seconds = 3e-3, .gmm_seconds = 2e-3, .packed_seconds = 1e-3};
  };
  PlanRequest r = request(1, 1);
  EXPECT_EQ(gmm_text(plan_points(r, rates(1), {DispatcherKind::kAlltoall}, packed).front()), "gmm")
      << "one micro-batch a step, whatever is predicted";
  r.micro_batches = 4;
  const auto points = plan_points(r, rates(1), {DispatcherKind::kAlltoall}, packed);
  EXPECT_EQ(gmm_text(points.front()), "gmm, packed");
  EXPECT_GT(points.front().memory.packed, 0);
  EXPECT_EQ(gmm_text(points.back()), "loop");
  EXPECT_EQ(points.back().memory.packed, 0);
  PlanRequest without_budget = r;
  without_budget.gmm_budget_bytes = 0;
  EXPECT_EQ(gmm_text(plan_points(without_budget, rates(1), {DispatcherKind::kAlltoall}, packed).front()),
            "gmm");
}

TEST(StepPlan, ADenseModelHasOneMesh) {
  PlanRequest dense = request(4, 4);
  dense.config.num_experts = 0;
  dense.config.num_experts_per_tok = 0;
  const auto points = plan_points(dense, rates(4), known_ways(), grouped_is_faster);
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points.front().step.mesh.ep, 1);
}

TEST(StepPlan, TheBottleneckIsTheLargestPart) {
  PhaseSeconds seconds{};
  seconds[static_cast<std::size_t>(Phase::kExperts)] = 3;
  seconds[static_cast<std::size_t>(Phase::kDispatch)] = 2;
  seconds[static_cast<std::size_t>(Phase::kCombine)] = 2;
  seconds[static_cast<std::size_t>(Phase::kLoss)] = 1;
  EXPECT_EQ(bottleneck(seconds), "exchange 50 %");
}

TEST(StepPlan, SaysWhereItExtrapolates) {
  EXPECT_TRUE(extrapolations(request(2, 2), rates(2), {}).empty());
  EXPECT_EQ(extrapolations(request(2, 2), rates(1), {}).size(), 3u) << "memory, links, ranks";
  PlanOptions given;
  given.network.bytes_per_second = 1e9;
  const auto far = extrapolations(request(1024, 64), rates(2), given);
  ASSERT_EQ(far.size(), 3u);
  EXPECT_NE(far.back().find("1024 ranks are extrapolated from 2; routing is taken as even"),
            std::string::npos)
      << far.back();
  PlanRequest uneven = request(1024, 64);
  uneven.expert_rows = {{3, 1}};
  EXPECT_EQ(extrapolations(uneven, rates(2), given).back().find("even"), std::string::npos);
}

TEST(StepPlan, BusyRanksAreThoseThatHaveProcessors) {
  PlanRequest job = request(16, 8);
  EXPECT_EQ(busy_node_ranks(job), 8);
  job.threads = 4;
  EXPECT_EQ(busy_node_ranks(job), 2);
  job.threads = 16;
  EXPECT_EQ(busy_node_ranks(job), 1);
  job = request(4, 8);
  EXPECT_EQ(busy_node_ranks(job), 4) << "a job of part of a node";
}

TEST(StepPlan, CalibrationIsAdvisedForTheSizesThatThePlanReads) {
  PlanRequest job = request(16, 8);
  job.threads = 4;
  PlanOptions options;
  options.model.folder = "model";
  const auto line = [&](Index nodes) { return calibrate_line(calibration_of(job, options), 2, nodes); };
  EXPECT_EQ(line(1), "mpirun -n 2 moeloom calibrate --model model --seq-len 256 --threads 4");
  job.dtype = DType::kBF16;
  EXPECT_EQ(line(2),
            "mpirun -n 4 --map-by ppr:2:node moeloom calibrate --model model --seq-len 256 --threads 4 "
            "--dtype bf16");
  auto notes = extrapolations(job, rates(1), options);
  ASSERT_EQ(notes.size(), 3u) << "memory, links, ranks";
  EXPECT_EQ(notes[0],
            "rates are of 1 busy ranks; 2 a node share its memory: `" + line(1) + "` measures that");
  EXPECT_NE(notes[1].find("`" + line(1) + "` does"), std::string::npos) << notes[1];
  job.threads = 8;
  notes = extrapolations(job, rates(1), options);
  ASSERT_EQ(notes.size(), 2u) << "no two ranks have processors of their own to measure on";
  EXPECT_EQ(notes[0].find("calibrate"), std::string::npos) << notes[0];
}

TEST(StepPlan, TheLineSaysEverythingThatThePointDoes) {
  PlanOptions options;
  options.model.shape.num_hidden_layers = 6;
  options.model.shape_given = {"layers"};
  options.data = "text.bin";
  PlanPoint point{.step = {.mesh = {16, 64, {"dp", "ep"}},
                           .ranks_per_node = 64,
                           .way = DispatcherKind::kShared,
                           .tokens = 2048,
                           .sequence_length = 256,
                           .micro_batches = 2}};
  EXPECT_EQ(run_line(options, point),
            "mpirun -n 1024 --map-by ppr:64:node moeloom train --layers 6 --ep 64 --seq-len 256 "
            "--global-batch 16384 --accumulate 2 --dispatcher shared --data text.bin");
  options.model.folder = "model";
  options.threads = 2;
  options.dtype = DType::kBF16;
  options.gmm_budget_bytes = 1 << 20;
  point.step.mesh = {2, 1, {"dp", "ep"}};
  EXPECT_EQ(run_line(options, point),
            "mpirun -n 2 moeloom train --model model --ep 1 --seq-len 256 --global-batch 32 --accumulate 2 "
            "--threads 2 --dtype bf16 --gmm-budget 1MiB --data text.bin");
}

TEST(StepPlan, TheLineAsksForWhatTrainWouldNotDoUnasked) {
  PlanOptions options;
  options.model.folder = "model";
  PlanPoint point{.step = {.mesh = {1, 4, {"dp", "ep"}},
                           .ranks_per_node = 2,
                           .way = DispatcherKind::kAlltoall,
                           .tokens = 1024,
                           .sequence_length = 256},
                  .grouped = true,
                  .sparse = true};
  point.step.chunks = 2;
  const auto says = [&](const std::string& words) {
    return run_line(options, point).find(words) != std::string::npos;
  };
  EXPECT_TRUE(says("--dispatcher alltoall --overlap 2 --data")) << run_line(options, point);
  EXPECT_FALSE(says("GMM_PATCH")) << "grouped is what an unset flag means";
  point.step.chunks = 0;
  EXPECT_TRUE(says("--dispatcher alltoall --overlap off --data")) << run_line(options, point);
  point.step.ranks_per_node = 4;
  EXPECT_TRUE(says("--dispatcher alltoall --data")) << run_line(options, point);
  point.grouped = false;
  EXPECT_TRUE(says("mpirun -n 4 -x MOELOOM_GMM_PATCH=0 moeloom train")) << run_line(options, point);
  point.sparse = false;
  EXPECT_FALSE(says("GMM_PATCH")) << "a dense model has no experts to run as a loop";
}

}  // namespace
}  // namespace moeloom
