// Training with replicas of experts, micro-batch by micro-batch.
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/parallel.hpp"

#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

struct RebalancedCourse {
  std::vector<double> losses;
  double validation;
  std::vector<float> weights;
  std::vector<std::vector<Index>> rows_per_expert;
  std::vector<RebalanceCounts> rebalance;  // [layer], of the last step, over all ranks
  Index replicas;                          // of all steps
};

RebalancedCourse rebalanced_course_of(const MeshShape& shape, const TrainingRunSettings& settings) {
  TrainingRun run(shape, settings);
  const Index steps = run.mesh.world().size() > 2 ? 2 : 4;  // on processors that are fewer
  RebalancedCourse course{run.losses(steps), 0, {}, {}, {}, 0};
  course.validation = run.trainer.evaluate({run.sampler.train(7, 0, run.mesh.world().rank())});
  const StepReport report = run.trainer.step(steps);
  course.rows_per_expert = report.rows_per_expert;
  course.rebalance = sum_over(run.mesh.world(), report.rebalance);
  course.replicas = total(sum_over(run.mesh.world(), run.decoder.rebalance_counts())).replicas;
  course.weights = run.weights();
  return course;
}

/// What the plain run decided nothing of, the other one did and counted.
void expect_the_course_without(const MeshShape& shape, TrainingRunSettings settings) {
  const RebalancedCourse plain = rebalanced_course_of(shape, settings);
  settings.rebalance = kFreeWeights;
  const RebalancedCourse rebalanced = rebalanced_course_of(shape, settings);
  EXPECT_EQ(rebalanced.losses, plain.losses);
  EXPECT_EQ(rebalanced.validation, plain.validation);
  EXPECT_EQ(rebalanced.weights, plain.weights);
  EXPECT_EQ(rebalanced.rows_per_expert, plain.rows_per_expert);
  EXPECT_TRUE(plain.rebalance.empty());
  ASSERT_EQ(rebalanced.rebalance.size(), plain.rows_per_expert.size());
  const RebalanceCounts counts = total(rebalanced.rebalance);
  Index sparse = 0;
  for (std::size_t layer = 0; layer < rebalanced.rebalance.size(); ++layer) {
    const RebalanceCounts& of_layer = rebalanced.rebalance[layer];
    const bool is_sparse = !plain.rows_per_expert[layer].empty();
    sparse += is_sparse;
    EXPECT_EQ(of_layer.decisions(), is_sparse ? settings.accumulation * shape.dp : 0);
    EXPECT_EQ(of_layer.saved_nanoseconds > 0, of_layer.decided(RebalanceVerdict::kMade) > 0);
    EXPECT_GE(of_layer.uneven_nanoseconds, 0);
  }
  EXPECT_EQ(counts.decisions(), sparse * settings.accumulation * shape.dp);
  EXPECT_LE(counts.load_after(), counts.load_before());
  EXPECT_EQ(rebalanced.replicas > 0, shape.ep > 1);
  EXPECT_EQ(counts.replicas > 0, counts.decided(RebalanceVerdict::kMade) > 0);
}

TEST(TrainerRebalance, HasTheSameBitsAsWithoutOnEveryMesh) {
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    SCOPED_TRACE(name_of(shape));
    expect_the_course_without(shape, {});
  }
}

TEST(TrainerRebalance, HasTheSameBitsForMicroBatchesFrozenExpertsAndEveryWay) {
  const Index world = Communicator::world().size();
  std::vector<NamedRun> cases = runs_that_may_differ();
  cases.push_back({"shared", {.dispatcher = DispatcherKind::kShared}});
  cases.push_back({"in chunks", {.chunks = 2}});
  cases.push_back({"shared, in chunks", {.dispatcher = DispatcherKind::kShared, .chunks = 2}});
  cases.push_back(
      {"between nodes, in chunks",
       {.dispatcher = DispatcherKind::kHierarchical, .wire = {.pretended_nodes = 2}, .chunks = 2}});
  cases.push_back({"exact", {.exact = 1}});
  cases.push_back({"exact, shared", {.dispatcher = DispatcherKind::kShared, .chunks = 2, .exact = 1}});
  cases.push_back({"bf16 rows", {.wire = {.dtype = WireDType::kBf16}}});
  cases.push_back({"bf16 masters", {.masters = Storage::kBf16}});
  cases.push_back(
      {"split masters, bf16 gradients", {.masters = Storage::kSplit, .gradients = Storage::kBf16}});
  cases.push_back(
      {"shared, split masters", {.dispatcher = DispatcherKind::kShared, .masters = Storage::kSplit}});
  for (const auto& [name, settings] : cases) {
    SCOPED_TRACE(name);
    expect_the_course_without(shape_of(1, world), settings);
  }
}

TrainingRunSettings with_adapter(TrainingRunSettings settings, Storage base_stored) {
  settings.model = with_experts(settings.model, settings.experts);
  settings.model.adapter = resolve_adapter(
      settings.model, {.rank = 3, .targets = {"attention", "experts"}, .base_stored = base_stored});
  return settings;
}

TEST(TrainerRebalance, HasTheSameBitsForAdaptersBesideWeightsInFp32Bf16AndF16) {
  const Index world = Communicator::world().size();
  for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kShared}) {
    std::vector<NamedRun> cases = runs_that_may_differ({.dispatcher = kind});
    std::erase_if(cases, [](const NamedRun& run) { return !run.settings.frozen.empty(); });
    std::size_t ways = 0;
    for (const auto& [name, settings] : cases)
      for (const Storage base_stored : {Storage::kFp32, Storage::kBf16, Storage::kF16}) {
        const std::size_t way = ways++;  // each case with each storage takes minutes on more ranks
        if (world > 2 && (way / 3 + way) % 3 != 0) continue;
        SCOPED_TRACE(std::string(name_of(kind)) + ", " + name + ", " + std::string(name_of(base_stored)));
        expect_the_course_without(shape_of(1, world), with_adapter(settings, base_stored));
      }
    SCOPED_TRACE(std::string(name_of(kind)) + ", exact");
    expect_the_course_without(shape_of(1, world),
                              with_adapter({.dispatcher = kind, .exact = 1}, Storage::kFp32));
  }
}

TEST(TrainerRebalance, HasTheSameBitsForTwoThreads) {
  if (Communicator::world().size() != 2) GTEST_SKIP() << "on 2 ranks";
  set_threads(2);
  for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kShared})
    expect_the_course_without(shape_of(1, 2), {.dispatcher = kind});
  set_threads(1);
}

}  // namespace
}  // namespace moeloom
