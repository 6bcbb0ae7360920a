// Steps of which some tokens are no targets, or padding: whoever holds them, and in whichever micro-batch.
#include "moeloom/base/errors.hpp"
#include "train/trainer.hpp"

#include "support/expect_error.hpp"
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

/// Of a token's place in the global batch of a step.
using Which = std::function<bool(Index step, Index place, Index tokens)>;

/// The sampler's batches: what is not real is padding, what is not learned no target.
auto masked(Which real, Which learned) {
  return [=](const BatchSampler& sampler, const BatchShape& shape, Index) {
    const Index tokens = shape.tokens();
    const auto is_target = [=](Index step, Index place) {
      return real(step, place, tokens) && learned(step, place, tokens);
    };
    const auto train = [=, &sampler](Index step, Index micro_batch, Index rank) {
      Batch batch = sampler.train(step, micro_batch, rank);
      for (Index t = 0; t < batch.tokens(); ++t) {
        batch.is_real.push_back(real(step, batch.first_token + t, tokens));
        if (!is_target(step, batch.first_token + t)) batch.targets[at(t)] = kIgnored;
      }
      return batch;
    };
    return BatchSource(train, [=](Index step) {
      StepTokens sum;
      for (Index place = 0; place < tokens; ++place) {
        sum.tokens += real(step, place, tokens) ? 1 : 0;
        sum.targets += is_target(step, place) ? 1 : 0;
      }
      return sum;
    });
  };
}

bool every_token(Index, Index, Index) {
  return true;
}

/// A third of the second half: the first ranks or micro-batches have none.
bool some_of_the_second_half(Index step, Index place, Index tokens) {
  return place >= tokens / 2 && (place * 7 + step) % 3 == 0;
}

/// The later a sequence of 24, the more padding at its end.
bool ever_more_padding(Index, Index place, Index) {
  return place % 24 < 24 - place / 24 % 20;
}

TrainingRunSettings half_learned(const TrainingRunSettings& changed = {}) {
  TrainingRunSettings settings = changed;
  settings.batches = masked(every_token, some_of_the_second_half);
  return settings;
}

TEST(TrainerTargets, LossesAndGradientsAreThoseOfOneRankOnEveryMesh) {
  const TrainingRunSettings settings = half_learned();
  const std::vector<double> alone = TrainingRun(shape_of(1, 1), settings).losses(5);
  const Gradients gradients = TrainingRun(shape_of(1, 1), settings).gradients(0.01);
  EXPECT_LT(alone[8], 0.97 * alone[0]) << "nothing was learned";
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    SCOPED_TRACE(name_of(shape));
    EXPECT_LE(relative_gap(TrainingRun(shape, settings).losses(5), alone), 1e-5);
    expect_same_gradients(TrainingRun(shape, settings).gradients(0.01), gradients);
  }
}

TEST(TrainerTargets, HaveTheSameBitsAtEveryEpOfTheSameWorld) {
  const Index world = Communicator::world().size();
  if ((world & (world - 1)) != 0)
    GTEST_SKIP() << world << " ranks: a row of ep is no subtree of the one order";
  const std::vector<double> all_dp = TrainingRun(shape_of(world, 1), half_learned()).losses(6);
  for (Index ep = 2; ep <= world; ep *= 2)
    EXPECT_EQ(TrainingRun(shape_of(world / ep, ep), half_learned()).losses(6), all_dp) << "ep " << ep;
}

TEST(TrainerTargets, AccumulationGivesTheGradientsAndLossesOfTheWholeBatch) {
  const TrainingRunSettings whole = half_learned({.global_batch = 24, .aux_loss_coef = 0, .z_loss_coef = 0});
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

/// The z loss is a mean over the step's real tokens, and so is the aux loss over the global batch, however
/// unlike the micro-batches are.
TEST(TrainerTargets, RouterLossesOverTheStepDoNotDependOnHowPaddingIsDealt) {
  TrainingRunSettings whole{.global_batch = 24, .aux_loss_coef = 0.1, .z_loss_coef = 0.1};
  whole.routing.balance = {.pooled = false, .over = BalanceOver::kGlobalBatch};
  whole.batches = masked(ever_more_padding, every_token);
  const std::vector<double> losses = TrainingRun(shape_of(1, 1), whole).losses(5);
  for (const Index accumulation : {2, 6})
    for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
      TrainingRunSettings parts = whole;
      parts.accumulation = accumulation;
      if (parts.global_batch % (accumulation * shape.world()) != 0) continue;
      EXPECT_LE(relative_gap(TrainingRun(shape, parts).losses(5), losses), 1e-5)
          << name_of(shape) << ", " << accumulation << " micro-batches";
    }
}

TEST(TrainerTargets, HaveTheSameBitsOnEveryMeshAndForAnyNumberOfMicroBatchesWhereSumsAreExact) {
  TrainingRunSettings settings = half_learned({.experts = 6, .exact = 1});
  settings.routing.balance = {.pooled = false, .over = BalanceOver::kGlobalBatch};
  for (const auto& batches :
       {masked(every_token, some_of_the_second_half), masked(ever_more_padding, every_token)}) {
    settings.batches = batches;
    settings.accumulation = 1;
    const Outcome alone = outcome_of(shape_of(1, 1), settings);
    for (const Index accumulation : {1, 3}) {
      settings.accumulation = accumulation;
      for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
        if (settings.global_batch % (shape.world() * accumulation) != 0) continue;
        SCOPED_TRACE(name_of(shape) + ", " + std::to_string(accumulation) + " micro-batches");
        expect_same_bits(outcome_of(shape, settings), alone);
      }
    }
  }
}

TEST(TrainerTargets, TheLossIsTheMeanOverThem) {
  TrainingRunSettings settings = half_learned({.accumulation = 2});
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    if (settings.global_batch % (2 * shape.world()) != 0) continue;
    TrainingRun run(shape, settings);
    std::vector<Batch> batches;
    for (Index m = 0; m < 2; ++m) batches.push_back(run.batches.train(0, m, run.mesh.world().rank()));
    const double mean = run.trainer.evaluate(batches);
    const StepReport report = run.trainer.step(0);
    EXPECT_NEAR(report.lm_loss, mean, 1e-6 * mean);
    EXPECT_EQ(report.tokens, 12 * 24);
    EXPECT_EQ(report.targets, 12 * 24 / 2 / 3);
  }
}

TEST(TrainerTargets, AStepWithoutAnyIsRefusedOnEveryRank) {
  TrainingRunSettings settings;
  settings.batches = masked(every_token, [](Index step, Index, Index) { return step != 1; });
  TrainingRun run(shape_of(1, Communicator::world().size()), settings);
  run.trainer.step(0);
  const std::vector<float> weights = run.weights();
  const std::string message = message_of<AgreedError>([&] { run.trainer.step(1); });
  EXPECT_NE(message.find("step 1: none of the 288 tokens of the global batch is learned"), std::string::npos)
      << message;
  EXPECT_EQ(run.weights(), weights);
  EXPECT_NO_THROW(run.trainer.step(2));
}

/// The weights of the step before are on their way when it is refused.
TEST(TrainerTargets, AStepThatIsRefusedLosesNoWeight) {
  TrainingRunSettings settings;
  settings.batches = masked(every_token, [](Index step, Index, Index) { return step != 1; });
  const MeshShape shape = shape_of(Communicator::world().size(), 1);
  TrainingRun at_once(shape, settings);
  settings.by_layer = settings.gather_by_layer = true;
  TrainingRun travelling(shape, settings);
  for (TrainingRun* run : {&at_once, &travelling}) {
    run->trainer.step(0);
    EXPECT_THROW(run->trainer.step(1), AgreedError);
  }
  travelling.trainer.settle();
  EXPECT_TRUE(travelling.store.is_whole());
  EXPECT_EQ(travelling.weights(), at_once.weights());
  for (TrainingRun* run : {&at_once, &travelling}) EXPECT_NO_THROW(run->trainer.step(2));
  travelling.trainer.settle();
  EXPECT_EQ(travelling.weights(), at_once.weights());
}

}  // namespace
}  // namespace moeloom
