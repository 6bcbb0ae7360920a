// Training with experts that change ranks between steps.
#include "moeloom/train/checkpoint/checkpoint.hpp"

#include <algorithm>

#include "support/files.hpp"
#include "support/shared_folder.hpp"
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

constexpr Index kExpertsThatMove =
    8;  // two on each of four ranks: where a rank has one, none is better placed

/// Weights by the names that a checkpoint gives them, of the experts that live on this rank.
struct ReplacedCourse {
  std::vector<double> losses;
  double validation = 0;
  std::vector<std::vector<Index>> rows_per_expert;
  Index moved = 0;
  std::map<std::string, std::vector<float>> weights;
};

ReplacedCourse replaced_course_of(const MeshShape& shape, const TrainingRunSettings& settings) {
  TrainingRun run(shape, settings);
  ReplacedCourse course;
  for (Index step = 0; step < 5; ++step) {
    const StepReport report = run.trainer.step(step);
    course.losses.insert(course.losses.end(), {report.loss, report.aux_loss, report.grad_norm});
    course.rows_per_expert = report.rows_per_expert;
    if (report.replace) course.moved += report.replace->moved;
  }
  course.validation = run.trainer.evaluate({run.sampler.train(7, 0, run.mesh.world().rank())});
  course.weights = run.weights_by_name();
  return course;
}

/// The weights that both courses have here are the same; at least those that did not move.
void expect_the_course_of_experts_that_stay(const MeshShape& shape, TrainingRunSettings settings) {
  settings.experts = kExpertsThatMove;
  const Index every = std::max<Index>(std::exchange(settings.replace_every, 0), 1);
  const ReplacedCourse stayed = replaced_course_of(shape, settings);
  settings.replace_every = every;
  const ReplacedCourse replaced = replaced_course_of(shape, settings);
  EXPECT_EQ(replaced.losses, stayed.losses);
  EXPECT_EQ(replaced.validation, stayed.validation);
  EXPECT_EQ(replaced.rows_per_expert, stayed.rows_per_expert);
  EXPECT_EQ(stayed.moved, 0);
  EXPECT_EQ(replaced.moved > 0, shape.ep > 1);
  EXPECT_EQ(replaced.weights.size(), stayed.weights.size());
  for (const auto& [name, weights] : replaced.weights)
    if (const auto here = stayed.weights.find(name); here != stayed.weights.end()) {
      EXPECT_EQ(weights, here->second) << name;
    }
}

TEST(TrainerReplace, HasTheSameBitsAsWithoutOnEveryMesh) {
  for (const MeshShape& shape : meshes_of_every_size()) {
    SCOPED_TRACE(name_of(shape));
    if (kExpertsThatMove % shape.ep == 0) expect_the_course_of_experts_that_stay(shape, {});
  }
}

TEST(TrainerReplace, HasTheSameBitsForMicroBatchesFrozenExpertsAndEveryWay) {
  const Index world = Communicator::world().size();
  std::vector<std::pair<const char*, TrainingRunSettings>> cases(14);
  cases[0].first = "micro-batches, packed faces", cases[0].second.accumulation = 2;
  cases[0].second.global_batch = 24, cases[0].second.packed = true;
  cases[1].first = "rebalanced too", cases[1].second.rebalance = kFreeWeights;
  cases[2].first = "frozen experts";
  cases[2].second.frozen = {"model.layers.0.mlp.experts.gate_up_proj",
                            "model.layers.2.mlp.experts.down_proj"};
  cases[3].first = "two nodes", cases[3].second.wire.pretended_nodes = 2;
  cases[3].second.dispatcher = DispatcherKind::kHierarchical;
  cases[4].first = "shared", cases[4].second.dispatcher = DispatcherKind::kShared;
  cases[5].first = "bf16 rows", cases[5].second.wire.dtype = WireDType::kBf16;
  cases[6].first = "in chunks", cases[6].second.chunks = 2;
  cases[7].first = "after two steps", cases[7].second.replace_every = 2;
  cases[8].first = "experts with biases", cases[8].second.model = biased_config();
  cases[8].second.z_loss_coef = 0;
  cases[9].first = "delta nets", cases[9].second.model = hybrid_config("qwen3_next");
  cases[10].first = "moments of 8 bits", cases[10].second.moments = MomentFormat::kInt8;
  cases[11].first = "Muon", cases[11].second.optimizer_kind = OptimizerKind::kMuon;
  cases[12].first = "split masters", cases[12].second.masters = Storage::kSplit;
  cases[13].first = "masters in bf16", cases[13].second.masters = Storage::kBf16;
  for (const auto& [name, settings] : cases) {
    SCOPED_TRACE(name);
    expect_the_course_of_experts_that_stay(shape_of(1, world), settings);
  }
}

TEST(TrainerReplace, MovesBetweenNodesAloneUnderANodePool) {
  if (Communicator::world().size() != 4) GTEST_SKIP() << "on 4 ranks";
  TrainingRunSettings settings{.dispatcher = DispatcherKind::kHierarchical, .node_pool = true};
  settings.wire.pretended_nodes = 2;
  expect_the_course_of_experts_that_stay(shape_of(1, 4), settings);
}

/// A decision falls after every so many steps, not before.
TEST(TrainerReplace, DecidesAfterSoManySteps) {
  TrainingRun run(shape_of(1, Communicator::world().size()), {.replace_every = 3});
  for (Index step = 0; step < 7; ++step) {
    const StepReport report = run.trainer.step(step);
    ASSERT_EQ(report.replace.has_value(), step % 3 == 2) << step;
    if (report.replace) {
      EXPECT_EQ(report.replace->layers, 2) << "the sparse ones";
    }
  }
}

/// A checkpoint knows experts by their numbers, wherever they lie; and what resumes goes on as if none had
/// moved.
TEST(TrainerReplace, LeavesNoTraceInCheckpoints) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  for (const MeshShape& shape : meshes_of(world.size())) {
    SCOPED_TRACE(name_of(shape));
    std::array<std::vector<double>, 2> losses;
    for (const Index every : {0, 1}) {
      TrainingRun run(shape, {.experts = kExpertsThatMove, .replace_every = every});
      Index moved = 0;
      for (Index step = 0; step < 4; ++step)
        if (const auto replaced = run.trainer.step(step).replace) moved += replaced->moved;
      EXPECT_EQ(moved > 0, every > 0 && shape.ep > 1);
      const std::filesystem::path to = folder.path() / (shape.text() + std::to_string(every));
      TrainerState state;
      state.step = 4;
      save_checkpoint({to}, run.store, run.optimizer, run.mesh, run.config, state);
      TrainingRun resumed(shape, {.experts = kExpertsThatMove, .replace_every = 1});
      load_checkpoint(to / "checkpoint-4", resumed.store, resumed.optimizer, resumed.mesh, resumed.config);
      for (Index step = 4; step < 7; ++step)
        losses[at(every)].push_back(resumed.trainer.step(step).grad_norm);
      const StepReport went_on = run.trainer.step(4);
      EXPECT_EQ(went_on.grad_norm, losses[at(every)].front());
    }
    EXPECT_EQ(losses[0], losses[1]);
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "trainer_state.json"})
      EXPECT_EQ(read_bytes(folder.path() / (shape.text() + "0") / "checkpoint-4" / file),
                read_bytes(folder.path() / (shape.text() + "1") / "checkpoint-4" / file))
          << file;
  }
}

TEST(TrainerReplace, NeedsAsManyExpertsOnEveryRank) {
  if (Communicator::world().size() == 1) GTEST_SKIP() << "every number divides";
  EXPECT_THROW(TrainingRun(shape_of(1, Communicator::world().size()), {.experts = 5, .replace_every = 1}),
               ShapeError);
}

}  // namespace
}  // namespace moeloom
