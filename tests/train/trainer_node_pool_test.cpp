// Training with the experts of a node as one pool.
#include "moeloom/base/parallel.hpp"
#include "moeloom/model/hf/adapter.hpp"

#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

/// Losses and gradient norms of some steps, a validation, and the weights after them.
struct Course {
  std::vector<double> losses;
  double validation;
  std::vector<float> weights;
  Index tasks;  // of this rank in the last step
};

Course course_of(const MeshShape& shape, TrainingRunSettings settings, bool node_pool) {
  settings.node_pool = node_pool;
  TrainingRun run(shape, settings);
  Course course{run.losses(4), 0, {}, 0};
  course.validation = run.trainer.evaluate({run.sampler.train(7, 0, run.mesh.world().rank())});
  course.tasks = run.trainer.step(4).pool.tasks;
  course.weights = run.weights();
  return course;
}

void expect_same_course(const MeshShape& shape, const TrainingRunSettings& settings) {
  const Course own = course_of(shape, settings, false);
  const Course pooled = course_of(shape, settings, true);
  EXPECT_EQ(pooled.losses, own.losses);
  EXPECT_EQ(pooled.validation, own.validation);
  EXPECT_EQ(pooled.weights, own.weights);
  EXPECT_EQ(own.tasks, 0);
  std::vector<Index> tasks = {pooled.tasks};
  Communicator::world().all_sum(std::span(tasks));
  EXPECT_GT(tasks[0], 0);
}

TEST(TrainerNodePool, HasTheSameBitsAsWithoutOnEveryMesh) {
  for (const MeshShape& shape : meshes_of_every_size())
    for (const bool fused : {true, false}) {
      SCOPED_TRACE(name_of(shape) + (fused ? ", grouped" : ", loop"));
      expect_same_course(shape, {.fused = fused, .dispatcher = DispatcherKind::kShared});
    }
}

TEST(TrainerNodePool, HasTheSameBitsForMicroBatchesFrozenExpertsAndNodes) {
  const Index world = Communicator::world().size();
  // Packed faces are those of the run without the pool, which reads masters.
  for (const auto& [name, settings] : runs_that_may_differ({.dispatcher = DispatcherKind::kShared})) {
    SCOPED_TRACE(name);
    expect_same_course(shape_of(1, world), settings);
  }
  expect_same_course(shape_of(1, world), {.dispatcher = DispatcherKind::kShared, .chunks = 2});
  if (world == 4)
    expect_same_course(
        shape_of(1, world),
        {.dispatcher = DispatcherKind::kHierarchical, .wire = {.pretended_nodes = 2}, .chunks = 2});
}

TrainingRunSettings with_adapter(TrainingRunSettings settings, Storage base_stored) {
  settings.model = with_experts(settings.model, settings.experts);
  settings.model.adapter = resolve_adapter(
      settings.model, {.rank = 3, .targets = {"attention", "experts"}, .base_stored = base_stored});
  return settings;
}

TEST(TrainerNodePool, HasTheSameBitsForAdaptersBesideWeightsInFp32Bf16AndF16) {
  const Index world = Communicator::world().size();
  std::vector<NamedRun> runs = runs_that_may_differ({.dispatcher = DispatcherKind::kShared});
  std::erase_if(runs, [](const NamedRun& run) { return !run.settings.frozen.empty(); });
  runs.push_back({"loop", {.fused = false, .dispatcher = DispatcherKind::kShared}});
  for (const auto& [name, settings] : runs)
    for (const Storage base_stored : {Storage::kFp32, Storage::kBf16, Storage::kF16}) {
      SCOPED_TRACE(std::string(name) + ", " + std::string(name_of(base_stored)));
      expect_same_course(shape_of(1, world), with_adapter(settings, base_stored));
    }
}

TEST(TrainerNodePool, HasTheSameBitsForMastersInBf16AndSplit) {
  const Index world = Communicator::world().size();
  for (const Storage masters : {Storage::kBf16, Storage::kSplit}) {
    SCOPED_TRACE(name_of(masters));
    expect_same_course(shape_of(1, world), {.dispatcher = DispatcherKind::kShared, .masters = masters});
  }
}

TEST(TrainerNodePool, HasTheSameBitsForTwoThreads) {
  if (Communicator::world().size() != 2) GTEST_SKIP() << "on 2 ranks";
  set_threads(2);
  expect_same_course(shape_of(1, 2), {.dispatcher = DispatcherKind::kShared});
  set_threads(1);
}

}  // namespace
}  // namespace moeloom
