#include "train/routing/routing_replay.hpp"

#include "moeloom/base/errors.hpp"

#include "routing_run.hpp"
#include "support/expect_error.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

constexpr Index kReplayedSteps = 5;

/// Trains `steps` steps with the routing of the file.
struct ReplayedRun {
  std::optional<RoutingReplay> replay;
  TrainingRun run;

  ReplayedRun(const std::filesystem::path& path, const MeshShape& shape, TrainingRunSettings settings,
              Index steps = kReplayedSteps)
      : run(shape, with_hooks(std::move(settings))) {
    replay.emplace(path, run.config, run.batch, run.mesh.world().size());
    replay->match(run.sampler, 0, steps);
  }

 private:
  TrainingRunSettings with_hooks(TrainingRunSettings settings) {
    settings.hooks.before = [this](MicroBatchPlace place, Batch& batch) { replay->give(place, batch); };
    return settings;
  }
};

TEST(RoutingReplay, GivesTheSameBitsAsTheRunThatWasRecorded) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  for (const Index accumulation : {1, 2})
    for (const MeshShape& shape : meshes_for(world.size(), tiny_config().num_experts)) {
      TrainingRunSettings settings{.global_batch = 24, .accumulation = accumulation};
      if (settings.global_batch % (accumulation * world.size()) != 0) continue;
      const auto path = folder.path() / (shape.text() + std::to_string(accumulation));
      RecordedRun recorded(path, shape, settings);
      recorded.record(0, kReplayedSteps);
      world.barrier();
      ReplayedRun replayed(path, shape, settings);
      EXPECT_TRUE(replayed.replay->goes_by_number());
      EXPECT_EQ(replayed.run.losses(kReplayedSteps), recorded.losses) << shape.text() << ", " << accumulation;
      EXPECT_EQ(replayed.run.weights(), recorded.run.weights()) << shape.text() << ", " << accumulation;
    }
}

TEST(RoutingReplay, ForcesTheChoicesOnOtherWeightsAtEveryEp) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const auto path = folder.path() / "r";
  RecordedRun recorded(path, shape_of(world.size(), 1), {});
  recorded.record(0, kReplayedSteps);
  world.barrier();
  const RoutingFile file(path);
  std::vector<double> free =
      TrainingRun(shape_of(world.size(), 1), {.weights_seed = 9}).losses(kReplayedSteps);
  std::vector<double> first;
  for (const MeshShape& shape : meshes_for(world.size(), tiny_config().num_experts)) {
    ReplayedRun other(path, shape, {.weights_seed = 9});
    const std::vector<double> losses = other.run.losses(kReplayedSteps);
    if (first.empty()) first = losses;
    EXPECT_NE(losses, free) << "the routers of these weights choose otherwise";
    const bool is_power = (world.size() & (world.size() - 1)) == 0;  // else a row of ep is no subtree
    EXPECT_TRUE(!is_power || losses == first) << shape.text();
    const Batch batch = other.run.sampler.train(kReplayedSteps - 1, 0, other.run.mesh.world().rank());
    Index sparse = 0;
    for (const DecoderLayer& layer : other.run.decoder.layers()) {
      if (layer.moe() == nullptr) continue;
      const std::vector<std::int32_t> all = file.read(kReplayedSteps - 1, sparse++).topk_idx;
      const auto begin = all.begin() + batch.first_token * 2;
      EXPECT_EQ(layer.moe()->routing().topk_idx, std::vector(begin, begin + batch.tokens() * 2));
    }
  }
}

/// Weights are the routers' own, so they learn from replayed choices.
TEST(RoutingReplay, LeavesTheRoutersTheirGradients) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const auto path = folder.path() / "r";
  RecordedRun(path, shape_of(world.size(), 1), {}).record(0, 1);
  world.barrier();
  ReplayedRun replayed(path, shape_of(world.size(), 1),
                       {.aux_loss_coef = 0, .z_loss_coef = 0, .weights_seed = 9}, 1);
  replayed.run.trainer.step(0);
  double sum = 0;
  for (const float d : replayed.run.store.find("model.layers.0.mlp.gate.weight").grad.flat())
    sum += std::abs(d);
  EXPECT_GT(sum, 0);
}

TEST(RoutingReplay, TakesStepsByNumberWhereTextsAreTheSameAndElseInTurn) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const auto path = folder.path() / "r";
  const MeshShape shape = shape_of(world.size(), 1);
  RecordedRun recorded(path, shape, {});
  recorded.record(2, 4);
  world.barrier();
  const RoutingFile file(path);
  const auto given = [&](const RoutingReplay& replay, Index step) {
    Batch batch = recorded.run.sampler.train(step, 0, world.rank());
    replay.give({step, 0}, batch);
    return batch.given_topk_idx;
  };
  const auto slice = [&](Index place) {
    const Batch batch = recorded.run.sampler.train(0, 0, world.rank());
    std::vector<std::vector<std::int32_t>> layers;
    for (const Index layer : {0, 1}) {
      const auto all = file.read(place, layer).topk_idx;
      const auto begin = all.begin() + batch.first_token * 2;
      layers.emplace_back(begin, begin + batch.tokens() * 2);
    }
    return layers;
  };
  RoutingReplay same(path, recorded.run.config, recorded.run.batch, world.size());
  same.match(recorded.run.sampler, 0, 10);
  EXPECT_TRUE(same.goes_by_number());
  EXPECT_EQ(same.forced_steps(0, 10), 2);
  EXPECT_TRUE(given(same, 1).empty()) << "not recorded: it routes by itself";
  EXPECT_EQ(given(same, 2), slice(0));
  EXPECT_EQ(given(same, 3), slice(1));
  EXPECT_NE(message_of<ConfigError>([&] {
              same.match(recorded.run.sampler, 4, 10);
            }).find("holds the routing of steps 2 to 3 of these data, and this run takes 4 to 9"),
            std::string::npos);
  RoutingReplay other(path, recorded.run.config, recorded.run.batch, world.size());
  const BatchSampler other_text(recorded.run.tokens, split_tokens(recorded.run.tokens.size(), 0.1),
                                recorded.run.batch, world.size(), 18);
  other.match(other_text, 4, 10);
  EXPECT_FALSE(other.goes_by_number());
  EXPECT_EQ(other.forced_steps(4, 10), 6);
  EXPECT_EQ(given(other, 4), slice(0));
  EXPECT_EQ(given(other, 5), slice(1));
  EXPECT_EQ(given(other, 6), slice(0)) << "in turn";
}

TEST(RoutingReplay, RefusesAnotherModelOrBatchWithEveryNumber) {
  const Communicator world = Communicator::world();
  const SharedFolder folder(world);
  const auto path = folder.path() / "r";
  RecordedRun recorded(path, shape_of(world.size(), 1), {});
  recorded.record(0, 1);
  world.barrier();
  ModelConfig config = recorded.run.config;
  config.num_experts = 8;
  config.num_experts_per_tok = 3;
  config.mlp_only_layers = {};
  BatchShape batch = recorded.run.batch;
  batch.length = 12;
  const std::string told = message_of<ConfigError>([&] { RoutingReplay(path, config, batch, world.size()); });
  for (const char* part :
       {"num_experts = 4, and this run has 8", "num_experts_per_tok = 2, and this run has 3",
        "sparse layers = 0, 2, and this run has 0, 1, 2", "sequence length = 24, and this run has 12",
        "tokens a step = 288, and this run has 144"})
    EXPECT_NE(told.find(part), std::string::npos) << part << "\n" << told;
}

}  // namespace
}  // namespace moeloom
