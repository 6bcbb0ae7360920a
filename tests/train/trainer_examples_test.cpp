// Training on packed examples: one result on every mesh, and that of the examples alone.
#include "train/example_batches.hpp"
#include "train/trainer.hpp"

#include <memory>

#include "example_files.hpp"
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

/// Two files, of which the first is read several times.
struct TwoFiles {
  MadeUpExamples few{{.examples = 30}}, many{{.examples = 200, .stream = 2}};
  ExampleBatches batches;
  explicit TwoFiles(const BatchShape& shape, Index world = 1)
      : batches({{&few.file(), 0.4}, {&many.file(), 0.6}},
                {.batch = shape, .world = world, .seed = 5, .heldout = 0.1}) {}
};

TrainingRunSettings on_examples(const TrainingRunSettings& changed = {}) {
  TrainingRunSettings settings = changed;
  settings.batches = [](const BatchSampler&, const BatchShape& shape, Index world) {
    const auto files = std::make_shared<TwoFiles>(shape, world);
    return BatchSource([files](Index step, Index micro_batch,
                               Index rank) { return files->batches.train(step, micro_batch, rank); },
                       [files](Index step) { return files->batches.tokens_of(step); });
  };
  return settings;
}

TEST(TrainerExamples, LossesAndGradientsAreThoseOfOneRankOnEveryMesh) {
  const std::vector<double> alone = TrainingRun(shape_of(1, 1), on_examples()).losses(12);
  const Gradients gradients = TrainingRun(shape_of(1, 1), on_examples()).gradients(0.01);
  EXPECT_LT(alone[22], 0.8 * alone[0]) << "nothing was learned";
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    SCOPED_TRACE(name_of(shape));
    EXPECT_LE(relative_gap(TrainingRun(shape, on_examples()).losses(12), alone), 1e-5);
    expect_same_gradients(TrainingRun(shape, on_examples()).gradients(0.01), gradients);
  }
}

TEST(TrainerExamples, HaveTheSameBitsAtEveryEpOfTheSameWorld) {
  const Index world = Communicator::world().size();
  if ((world & (world - 1)) != 0)
    GTEST_SKIP() << world << " ranks: a row of ep is no subtree of the one order";
  const std::vector<double> all_dp = TrainingRun(shape_of(world, 1), on_examples()).losses(6);
  for (Index ep = 2; ep <= world; ep *= 2)
    EXPECT_EQ(TrainingRun(shape_of(world / ep, ep), on_examples()).losses(6), all_dp) << "ep " << ep;
}

TEST(TrainerExamples, HaveTheSameBitsOnEveryMeshAndForAnyNumberOfMicroBatchesWhereSumsAreExact) {
  TrainingRunSettings settings = on_examples({.experts = 6, .exact = 1});
  settings.routing.balance = {.pooled = false, .over = BalanceOver::kGlobalBatch};
  const Outcome alone = outcome_of(shape_of(1, 1), settings);
  for (const Index accumulation : {1, 2}) {
    settings.accumulation = accumulation;
    for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
      if (settings.global_batch % (shape.world() * accumulation) != 0) continue;
      SCOPED_TRACE(name_of(shape) + ", " + std::to_string(accumulation) + " micro-batches");
      expect_same_bits(outcome_of(shape, settings), alone);
    }
  }
}

/// A batch of one example without anything beside it.
Batch example_alone(const Batch& batch, Stretch segment) {
  Batch example;
  example.sequences = 1;
  example.sequence_length = segment.size();
  const auto part = [&](const std::vector<std::int32_t>& of) {
    return std::vector<std::int32_t>(of.begin() + segment.begin, of.begin() + segment.end);
  };
  example.input_ids = part(batch.input_ids);
  example.targets = part(batch.targets);
  return example;
}

/// Every rank has all examples, so that no sum over ranks is another one.
TEST(TrainerExamples, GradientsAndLossAreThoseOfTheExamplesAlone) {
  TrainingRun run(shape_of(1, Communicator::world().size()), {.aux_loss_coef = 0, .z_loss_coef = 0});
  const TwoFiles files({.sequences = 6, .length = 24});
  const Batch packed = files.batches.train(0, 0, 0);
  const LossScales scales{.lm = 1.0 / static_cast<double>(files.batches.tokens_of(0).targets)};
  const auto gradients = [&](const std::vector<Batch>& batches) {
    run.store.restart_gradients();
    double loss = 0;
    for (const Batch& batch : batches)
      loss += run.decoder.forward_backward(batch, scales).nll_sum * scales.lm;
    std::vector<double> all = {loss};
    for (const Placement placement : kPlacements)
      for (const float g : run.store.gradients(placement)) all.push_back(g);
    return all;
  };
  std::vector<Batch> examples;
  for (std::size_t s = 0; s + 1 < packed.segment_offsets.size(); ++s) {
    const Stretch segment{packed.segment_offsets[s], packed.segment_offsets[s + 1]};
    if (packed.is_real[at(segment.begin)] != 0) examples.push_back(example_alone(packed, segment));
  }
  EXPECT_GT(examples.size(), 6u);
  const std::vector<double> together = gradients({packed}), apart = gradients(examples);
  const double largest = std::ranges::max(apart, {}, [](double g) { return std::abs(g); });
  for (std::size_t i = 0; i < apart.size(); ++i) ASSERT_NEAR(together[i], apart[i], 1e-5 * largest) << i;
}

TEST(TrainerExamples, EvaluationIsTheMeanOverLearnedTokensOnEveryMesh) {
  const auto evaluated = [](const MeshShape& shape) {
    TrainingRun run(shape, on_examples());
    const TwoFiles files(run.batch, shape.world());
    return run.trainer.evaluate(files.batches.heldout(100, 2, run.mesh.world().rank()));
  };
  const double alone = evaluated(shape_of(1, 1));
  EXPECT_NEAR(alone, std::log(256), 1) << "of random weights";
  for (const MeshShape& shape : meshes_of(Communicator::world().size()))
    EXPECT_NEAR(evaluated(shape), alone, 1e-6 * alone);
}

}  // namespace
}  // namespace moeloom
