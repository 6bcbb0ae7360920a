// Training of adapters that drop inputs: the same bits on every mesh, by every way rows take, and when a step
// or a part of it runs again.
#include "model/hf/weights/adapter.hpp"

#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

ModelConfig with_all_adapters(ModelConfig config, double dropout) {
  config.adapter = resolve_adapter(config, {.rank = 3, .alpha = 6, .dropout = dropout, .targets = {"*"}});
  return config;
}

TrainingRunSettings dropping(double dropout = 0.3) {
  return {.experts = 4, .model = with_all_adapters(tiny_config(), dropout)};
}

TEST(TrainerDropout, HasTheSameBitsOnEveryMesh) {
  const Index world = Communicator::world().size();
  for (const bool packed : {false, true}) {
    TrainingRunSettings settings = dropping();
    settings.packed = packed;
    const Outcome alone = outcome_of(shape_of(world, 1), settings);
    for (const MeshShape& shape : meshes_of(world)) {
      if (shape.order.back() == "dp") continue;  // its ep rows are no subtree of the sums
      SCOPED_TRACE(name_of(shape));
      expect_same_bits(outcome_of(shape, settings), alone);
    }
  }
}

TEST(TrainerDropout, HasTheSameBitsByEveryWayOfRows) {
  const Index world = Communicator::world().size();
  std::vector<NamedRun> runs(7, {"", dropping()});
  runs[0].name = "plain";
  runs[1].name = "in chunks", runs[1].settings.chunks = 2;
  runs[2].name = "in a node's memory", runs[2].settings.dispatcher = DispatcherKind::kShared;
  runs[3].name = "two nodes", runs[3].settings.dispatcher = DispatcherKind::kHierarchical;
  runs[3].settings.wire.pretended_nodes = 2;
  runs[4].name = "checked", runs[4].settings.check_steps = runs[4].settings.check_replicas = 1;
  runs[5].name = "replicas", runs[5].settings.rebalance = kFreeWeights;
  runs[6].name = "replicas in a node's memory", runs[6].settings.rebalance = kFreeWeights;
  runs[6].settings.dispatcher = DispatcherKind::kShared;
  const Outcome plain = outcome_of(shape_of(1, world), runs[0].settings);
  for (const auto& [name, settings] : runs) {
    SCOPED_TRACE(name);
    expect_same_bits(outcome_of(shape_of(1, world), settings), plain);
  }
}

TEST(TrainerDropout, HasTheSameBitsWhereBackwardMakesRowsAgain) {
  const Index world = Communicator::world().size();
  std::vector<NamedRun> runs(4, {"", dropping()});
  runs[0].name = "plain";
  runs[1].name = "slices", runs[1].settings.routing.row_budget = 40;
  runs[2].name = "biases";
  runs[2].settings.model = with_all_adapters(biased_config(), 0.3), runs[2].settings.z_loss_coef = 0;
  runs[3].name = "latent attention and shared experts";
  runs[3].settings.model = with_all_adapters(deepseek_config(), 0.3), runs[3].settings.z_loss_coef = 0;
  for (auto& [name, settings] : runs) {
    settings.recompute = Recompute::kNone;
    const Outcome kept = outcome_of(shape_of(1, world), settings);
    for (const Recompute recompute : {Recompute::kExperts, Recompute::kBlock}) {
      SCOPED_TRACE(std::string(name) + ", " + std::string(name_of(recompute)));
      settings.recompute = recompute;
      expect_same_bits(outcome_of(shape_of(1, world), settings), kept);
    }
  }
}

TEST(TrainerDropout, HasTheSameBitsOnAnyNumberOfRanksWithExactSums) {
  TrainingRunSettings settings = dropping();
  settings.exact = 1;
  const Outcome alone = outcome_of(shape_of(1, 1), settings);
  for (const MeshShape& shape : meshes_of_every_size()) {
    SCOPED_TRACE(name_of(shape));
    expect_same_bits(outcome_of(shape, settings), alone);
  }
  if (const Index world = Communicator::world().size(); world > 1) {
    settings.rebalance = kFreeWeights;
    expect_same_bits(outcome_of(shape_of(1, world), settings), alone);
    settings.rebalance = {};
  }
  settings.accumulation = 2;
  settings.aux_loss_coef = 0;  // of a micro-batch
  TrainingRunSettings whole = settings;
  whole.accumulation = 1;
  EXPECT_EQ(outcome_of(shape_of(1, 1), settings).losses, outcome_of(shape_of(1, 1), whole).losses)
      << "masks are of a step, not of a micro-batch";
}

TEST(TrainerDropout, DropsInputsInStepsAlone) {
  const Index world = Communicator::world().size();
  TrainingRun with(shape_of(1, world), dropping()), without(shape_of(1, world), dropping(0));
  with.losses(2);
  for (const Parameter& parameter : with.store.parameters())
    if (parameter.spec.adapter) copy(parameter.value, without.store.find(parameter.spec.name).value);
  without.store.mark_changed();
  const auto held = [](TrainingRun& run) {
    return run.trainer.evaluate(run.sampler.heldout(7, 2, run.mesh.world().rank()));
  };
  EXPECT_EQ(held(with), held(without));
  EXPECT_NE(with.trainer.step(2).lm_loss, without.trainer.step(2).lm_loss);
  EXPECT_EQ(with.store.dropout().share, 0);
}

/// The same weights and tokens in the same step.
TEST(TrainerDropout, DrawsOtherMasksByAnotherSeedAndTheSameByTheSame) {
  const auto loss_of = [](std::uint64_t seed, double dropout) {
    TrainingRunSettings settings = dropping(dropout);
    settings.masks_seed = seed;
    TrainingRun run(shape_of(1, Communicator::world().size()), settings);
    for (const Parameter& parameter : run.store.parameters())
      if (parameter.spec.adapter) fill(parameter.value, 0.05f);
    run.store.mark_changed();
    return run.trainer.step(0).lm_loss;
  };
  EXPECT_EQ(loss_of(1, 0.3), loss_of(1, 0.3));
  EXPECT_NE(loss_of(1, 0.3), loss_of(2, 0.3));
  EXPECT_EQ(loss_of(1, 0), loss_of(2, 0)) << "the seed is of nothing else";
}

/// Other masks in each step: the same tokens and weights, and another loss.
TEST(TrainerDropout, DrawsOtherMasksInEachStep) {
  TrainingRunSettings settings = dropping();
  settings.batches = [](const BatchSampler& sampler, const BatchShape&, Index) {
    BatchSource source(sampler);
    const auto train = source.train;
    source.train = [train](Index, Index micro_batch, Index rank) { return train(0, micro_batch, rank); };
    return source;
  };
  TrainingRun run(shape_of(1, Communicator::world().size()), settings);
  for (const Parameter& parameter :
       run.store.parameters())  // B begins as zeros, beside which no mask is seen
    if (parameter.spec.adapter) fill(parameter.value, 0.05f);
  run.store.mark_changed();
  const std::vector<float> weights = run.weights();
  const double first = run.trainer.step(0).lm_loss;
  Index next = 0;
  for (const Parameter& parameter : run.store.parameters()) {
    std::ranges::copy_n(weights.begin() + next, parameter.value.size(), parameter.value.data);
    next += parameter.value.size();
  }
  run.store.mark_changed();
  EXPECT_NE(run.trainer.step(1).lm_loss, first);
}

}  // namespace
}  // namespace moeloom
