#include "train/step_checks.hpp"

#include "moeloom/base/errors.hpp"

#include <bit>

#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

void flip_a_bit(float& number) {
  number = std::bit_cast<float>(std::bit_cast<std::uint32_t>(number) ^ (1u << 12));
}

float& weight_of(TrainingRun& run, const std::string& name) {
  const MatrixView values = run.store.find(name).value;
  return values.data[values.size() / 2];
}

std::string difference_in(TrainingRun& run, Index step) {
  try {
    run.trainer.step(step);
  } catch (const DifferenceError& error) {
    return error.what();
  }
  return {};
}

TrainingRunSettings checked(Index replicas, Index steps) {
  TrainingRunSettings settings;
  settings.check_replicas = replicas;
  settings.check_steps = steps;
  return settings;
}

TEST(StepChecks, FindNothingInASoundRunAndChangeNoBitOfIt) {
  for (const MeshShape& shape : meshes_of_every_size()) {
    TrainingRunSettings settings = checked(1, 2);
    settings.accumulation = 12 % (2 * shape.world()) == 0 ? 2 : 1;
    TrainingRunSettings plain = settings;
    plain.check_replicas = plain.check_steps = 0;
    EXPECT_EQ(TrainingRun(shape, settings).losses(6), TrainingRun(shape, plain).losses(6)) << name_of(shape);
  }
}

TEST(StepChecks, ABitOfADenseWeightIsFoundWithItsParameterAndRank) {
  const Index world = Communicator::world().size();
  for (const MeshShape& shape : meshes_of(world)) {
    TrainingRun run(shape, checked(2, 0));
    const std::string name = "model.layers.1.self_attn.o_proj.weight";
    run.losses(3);
    if (run.mesh.world().rank() == world - 1) flip_a_bit(weight_of(run, name));
    const std::string found = difference_in(run, 3);
    const std::string rank = " on rank " + std::to_string(world - 1) + ";";
    EXPECT_NE(found.find("step 3: a number is not what the update before left; first " + name + rank),
              std::string::npos)
        << name_of(shape) << ": " << found;
  }
}

TEST(StepChecks, WhatOneRankAloneHoldsIsComparedWithItself) {
  const Index world = Communicator::world().size();
  for (const bool of_moments : {false, true}) {
    TrainingRun run(shape_of(1, world), checked(1, 0));
    run.losses(2);
    if (run.mesh.world().rank() == world - 1)
      flip_a_bit(of_moments ? run.optimizer.moments().words(Moment::kSecond).back()
                            : weight_of(run, "model.layers.2.mlp.experts.down_proj"));
    const std::string found = difference_in(run, 2);
    const std::string name = of_moments ? "a second moment" : "model.layers.2.mlp.experts.down_proj";
    EXPECT_NE(found.find("first " + name + " on rank " + std::to_string(world - 1)), std::string::npos)
        << found;
  }
}

TEST(StepChecks, ADenseWeightThatDiffersBetweenRanksIsFoundWithoutAnUpdateBefore) {
  const Index world = Communicator::world().size();
  if (world == 1) GTEST_SKIP() << "a rank alone has no replica";
  TrainingRun run(shape_of(world, 1), checked(1, 0));
  const std::string name = "model.layers.1.self_attn.o_proj.weight";
  if (run.mesh.world().rank() == world - 1) flip_a_bit(weight_of(run, name));
  const std::string found = difference_in(run, 0);
  const std::string ranks = world == 2 ? " on ranks 0,1;" : " on rank " + std::to_string(world - 1) + ";";
  EXPECT_NE(found.find("step 0: replicas are not the same; first " + name + "," + ranks), std::string::npos)
      << found;
}

TEST(StepChecks, ABitOfAnExpertIsFoundDownItsColumn) {
  const Index world = Communicator::world().size();
  if (world < 2 || world % 2 != 0) GTEST_SKIP() << "needs dp = 2";
  TrainingRun run(shape_of(2, world / 2), checked(1, 0));
  if (run.mesh.world().rank() == 0)
    flip_a_bit(run.store.find("model.layers.2.mlp.experts.down_proj").value.data[0]);
  const std::string found = difference_in(run, 0);
  const std::string ranks = " on ranks 0," + std::to_string(world / 2) + ";";
  EXPECT_NE(found.find("first model.layers.2.mlp.experts.down_proj, expert 0," + ranks), std::string::npos)
      << found;
}

TEST(StepChecks, ARandomStreamOfAnotherSeedAndACountOfUpdatesAreFound) {
  const Index world = Communicator::world().size();
  if (world == 1) GTEST_SKIP() << "a rank alone has no replica";
  TrainingRun run(shape_of(world, 1), {});
  const bool odd = run.mesh.world().rank() == 1;
  const BatchSampler other(run.tokens, split_tokens(run.tokens.size(), 0.1), run.batch, world, odd ? 18 : 17);
  const auto difference = [&](const BatchSampler& sampler) {
    return first_difference_of_replicas({run.store, run.optimizer, sampler, 4, 0.1}, run.mesh);
  };
  EXPECT_EQ(difference(run.sampler), "");
  EXPECT_NE(difference(other).find("random stream of batches on rank"), std::string::npos)
      << difference(other);
  if (odd) run.optimizer.times()[0][0] += 1;
  EXPECT_TRUE(difference(run.sampler).starts_with(run.store.parameters()[0].spec.name + ", on rank"))
      << difference(run.sampler);
}

/// A processor that errs once: a weight differs between the two runs of a step.
TEST(StepChecks, AGradientThatDiffersFromItsSecondRunIsFoundWithItsRank) {
  for (const Index exact : {0, 1}) {
    const Index world = Communicator::world().size();
    TrainingRunSettings settings = checked(0, 2);
    settings.exact = exact;
    Index runs_of_step = 0;
    TrainingRun* running = nullptr;
    settings.hooks.before = [&](MicroBatchPlace place, Batch&) {
      if (place.step != 1 || ++runs_of_step != 2 || running->mesh.world().rank() != world - 1) return;
      weight_of(*running, "model.norm.weight") *= 1.5f;
    };
    TrainingRun run(shape_of(world, 1), settings);
    running = &run;
    EXPECT_EQ(difference_in(run, 0), "");
    const std::string found = difference_in(run, 1);
    EXPECT_NE(found.find("step 1: computed twice"), std::string::npos) << found;
    EXPECT_NE(found.find("first in the gradient of lm_head.weight on rank " + std::to_string(world - 1)),
              std::string::npos)
        << found;
  }
}

}  // namespace
}  // namespace moeloom
