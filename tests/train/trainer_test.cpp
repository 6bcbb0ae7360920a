#include "train/trainer.hpp"

#include "moeloom/base/parallel.hpp"

#include <cmath>
#include <thread>

#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

TEST(Trainer, LossesAndGradientNormsOverTwentyStepsAreThoseOfOneRankOnEveryMesh) {
  for (const bool fused : {true, false}) {
    const std::vector<double> alone = TrainingRun(shape_of(1, 1), {.fused = fused}).losses(20);
    EXPECT_LT(alone[38], 0.8 * alone[0]) << "the model must have learned something for this to be a test";
    for (const MeshShape& shape : meshes_of_every_size())
      EXPECT_LE(relative_gap(TrainingRun(shape, {.fused = fused}).losses(20), alone), 1e-5)
          << name_of(shape) << " fused " << fused;
  }
}

TEST(Trainer, GradientsPerParameterAreThoseOfOneRankOnEveryMesh) {
  const Gradients alone = TrainingRun(shape_of(1, 1), {}).gradients(0.01);
  for (const MeshShape& shape : meshes_of_every_size()) {
    SCOPED_TRACE(name_of(shape));
    expect_same_gradients(TrainingRun(shape, {}).gradients(0.01), alone);
  }
}

TEST(Trainer, HasTheSameBitsAtEveryEpOfTheSameWorld) {
  const Index world = Communicator::world().size();
  if ((world & (world - 1)) != 0)
    GTEST_SKIP() << world << " ranks: a row of ep is no subtree of the one order";
  const std::vector<double> all_dp = TrainingRun(shape_of(world, 1), {}).losses(20);
  for (const MeshShape& shape : meshes_of(world)) {
    const std::vector<double> losses = TrainingRun(shape, {}).losses(20);
    if (shape.order.back() == "ep")
      EXPECT_EQ(losses, all_dp) << name_of(shape);
    else  // strided ep rows are no subtrees either
      EXPECT_LE(relative_gap(losses, all_dp), 1e-5) << name_of(shape);
  }
}

/// On every rank and on half of them, so that E mod ep is 0, 1 and 2.
TEST(Trainer, HasTheSameBitsForEveryDispatcherAndForExpertsThatEpDoesNotDivide) {
  const int world = Communicator::world().size();
  if ((world & (world - 1)) != 0)
    GTEST_SKIP() << world << " ranks: a row of ep is no subtree of the one order";
  for (const Index experts : {4, 5, 6}) {
    const std::vector<double> all_dp = TrainingRun(shape_of(world, 1), {.experts = experts}).losses(6);
    for (const Index ep : {std::max(world / 2, 1), world})
      for (const DispatcherKind kind : kDispatcherKinds) {
        SCOPED_TRACE(std::string(name_of(kind)) + ", " + std::to_string(experts) +
                     " experts, ep = " + std::to_string(ep));
        TrainingRun run(shape_of(world / ep, ep),
                        {.experts = experts, .dispatcher = kind, .wire = {.pretended_nodes = 2}});
        EXPECT_EQ(run.losses(6), all_dp);
      }
  }
}

TEST(Trainer, LosesLittleToRowsRoundedOnTheWireAndToSumsInAnotherOrder) {
  const Index world = Communicator::world().size();
  const std::vector<double> exact = TrainingRun(shape_of(1, world), {}).losses(6);
  const auto far = [&](DispatcherKind kind, const WireSettings& wire) {
    const auto losses = TrainingRun(shape_of(1, world), {.dispatcher = kind, .wire = wire}).losses(6);
    double largest = 0;
    for (std::size_t i = 0; i < exact.size(); i += 2)  // not the gradient norms between them
      largest = std::max(largest, std::abs(losses[i] - exact[i]) / exact[i]);
    return largest;
  };
  for (const DispatcherKind kind : {DispatcherKind::kAlltoall, DispatcherKind::kHierarchical}) {
    const double error = far(kind, {.dtype = WireDType::kBf16, .pretended_nodes = 2});
    // A number of a row is off by 1 / 256 at most, at random, and a loss is a mean over many tokens. (A
    // gradient norm is off by up to 0.7 %: where two logits nearly tie, rounding changes who is chosen.)
    EXPECT_LT(error, 1e-3) << name_of(kind);
    EXPECT_EQ(error > 0, world > 1) << name_of(kind);
  }
  EXPECT_LT(far(DispatcherKind::kHierarchical, {.combine = CombineMode::kFast, .pretended_nodes = 2}), 1e-5);
}

TEST(Trainer, HasTheSameBitsForAnyNumberOfThreads) {
  const MeshShape shape = shape_of(1, Communicator::world().size());
  const std::vector<double> one = TrainingRun(shape, {}).losses(4);
  set_threads(3);
  const std::vector<double> three = TrainingRun(shape, {}).losses(4);
  set_threads(1);
  EXPECT_EQ(one, three);
}

/// Without router losses, whose products of means are other products of other means in halves of a batch.
TEST(Trainer, AccumulationGivesTheGradientsAndLossesOfTheWholeBatchOnEveryMesh) {
  const TrainingRunSettings whole{.global_batch = 24, .aux_loss_coef = 0, .z_loss_coef = 0};
  const Gradients gradients = TrainingRun(shape_of(1, 1), whole).gradients(0);
  const std::vector<double> losses = TrainingRun(shape_of(1, 1), whole).losses(5);
  for (const Index accumulation : {2, 3})
    for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
      TrainingRunSettings parts = whole;
      parts.accumulation = accumulation;
      if (parts.global_batch % (accumulation * shape.world()) != 0) continue;
      SCOPED_TRACE(name_of(shape) + ", " + std::to_string(accumulation) + " micro-batches");
      expect_same_gradients(TrainingRun(shape, parts).gradients(0), gradients);
      EXPECT_LE(relative_gap(TrainingRun(shape, parts).losses(5), losses), 1e-5);
    }
}

TEST(Trainer, CountsEveryRowOfEveryExpert) {
  TrainingRun run(shape_of(1, Communicator::world().size() == 3 ? 1 : Communicator::world().size()), {});
  const StepReport report = run.trainer.step(0);
  ASSERT_EQ(report.rows_per_expert.size(), 3u);
  EXPECT_TRUE(report.rows_per_expert[1].empty()) << "layer 1 is dense";
  Index rows = 0;
  for (const Index r : report.rows_per_expert[0]) rows += r;
  EXPECT_EQ(rows, report.tokens * 2);
  EXPECT_EQ(report.chosen_per_expert, report.rows_per_expert)
      << "nothing is padding, and nothing was dropped";
}

TEST(Trainer, PhasesAddUpToTheSecondsOfTheStepAndToNothingBetweenSteps) {
  TrainingRun run(shape_of(Communicator::world().size(), 1), {.global_batch = 48});
  Index near = 0;  // of these steps; a rank may lose its processor before the clock of a step starts
  for (Index step = 0; step < 6; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto begin = std::chrono::steady_clock::now();
    const StepReport report = run.trainer.step(step);
    const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    double sum = 0;
    for (const double seconds : report.phase_seconds) sum += seconds;
    EXPECT_DOUBLE_EQ(sum, report.seconds);
    EXPECT_LE(sum, took) << "what is before a step is not of it";
    near += sum >= 0.5 * took ? 1 : 0;
  }
  EXPECT_GE(near, 3);
}

TEST(Trainer, EvaluatesTheSameOnEveryMesh) {
  TrainingRun alone(shape_of(1, 1), {});
  const double expected = alone.trainer.evaluate(alone.sampler.heldout(5, 2, 0));
  for (const MeshShape& shape : meshes_of_every_size()) {
    TrainingRun run(shape, {});
    EXPECT_NEAR(run.trainer.evaluate(run.sampler.heldout(5, 2, run.mesh.world().rank())), expected, 1e-6)
        << shape.text();
  }
}

TEST(Trainer, PacksEachExpertWeightOnceAStepWhateverTheMicroBatches) {
  for (const bool fused : {true, false}) {
    TrainingRun run(shape_of(1, 1), {.accumulation = 3, .fused = fused, .packed = fused});
    for (Index step = 0; step < 2; ++step) {
      const StepReport report = run.trainer.step(step);
      EXPECT_EQ(report.packings, fused ? 4 : 0);  // two sparse layers of two weights
      EXPECT_EQ(report.packed_bytes > 0, fused);
    }
  }
}

}  // namespace
}  // namespace moeloom
