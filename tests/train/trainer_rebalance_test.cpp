// Training with replicas of experts, micro-batch by micro-batch.
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
  RebalanceCounts rebalance;  // of the last step, over all ranks
  Index replicas;             // of all steps
};

RebalancedCourse rebalanced_course_of(const MeshShape& shape, const TrainingRunSettings& settings) {
  TrainingRun run(shape, settings);
  RebalancedCourse course{run.losses(4), 0, {}, {}, {}, 0};
  course.validation = run.trainer.evaluate({run.sampler.train(7, 0, run.mesh.world().rank())});
  const StepReport report = run.trainer.step(4);
  course.rows_per_expert = report.rows_per_expert;
  course.rebalance = sum_over(run.mesh.world(), report.rebalance);
  course.replicas = sum_over(run.mesh.world(), run.decoder.rebalance_counts()).replicas;
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
  EXPECT_EQ(plain.rebalance.decisions(), 0);
  const RebalanceCounts& counts = rebalanced.rebalance;
  Index sparse = 0;
  for (const auto& layer : plain.rows_per_expert) sparse += !layer.empty();
  EXPECT_EQ(counts.decisions(), sparse * settings.accumulation * shape.dp);
  EXPECT_LE(counts.load_after(), counts.load_before());
  EXPECT_EQ(rebalanced.replicas > 0, shape.ep > 1);
  EXPECT_EQ(counts.replicas > 0, counts.decided(RebalanceVerdict::kMade) > 0);
}

TEST(TrainerRebalance, HasTheSameBitsAsWithoutOnEveryMesh) {
  for (const MeshShape& shape : meshes_of_every_size()) {
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
  cases.push_back({"bf16 rows", {.wire = {.dtype = WireDType::kBf16}}});
  for (const auto& [name, settings] : cases) {
    SCOPED_TRACE(name);
    expect_the_course_without(shape_of(1, world), settings);
  }
}

TEST(TrainerRebalance, HasTheSameBitsForTwoThreads) {
  if (Communicator::world().size() != 2) GTEST_SKIP() << "on 2 ranks";
  set_threads(2);
  expect_the_course_without(shape_of(1, 2), {});
  set_threads(1);
}

}  // namespace
}  // namespace moeloom
