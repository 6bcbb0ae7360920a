#include "train/training_state.hpp"

#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"

#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::tiny_config;

Mesh ep_of_all() {
  Communicator world = Communicator::world();
  const MeshShape shape{.dp = 1, .ep = world.size()};
  return Mesh(std::move(world), shape);
}

TEST(TrainingState, HoldsTheExpertsOfItsRankAndLeavesFrozenOnesWithoutMoments) {
  const Mesh mesh = ep_of_all();
  const ModelConfig config = tiny_config();
  const auto state = make_training_state(config, mesh, {});
  const auto specs = parameter_specs(config, testing::experts_here(config, mesh));
  ASSERT_EQ(state->store.parameters().size(), specs.size());
  for (std::size_t p = 0; p < specs.size(); ++p)
    EXPECT_EQ(state->store.parameters()[p].value.rows, specs[p].rows);
  const auto partly = make_training_state(config, mesh, {.frozen = {"lm_head.weight"}});
  EXPECT_EQ(frozen_names(partly->store), std::vector<std::string>{"lm_head.weight"});
  std::vector<Index> moments = {std::ssize(state->optimizer.moments().words(Moment::kFirst)),
                                std::ssize(partly->optimizer.moments().words(Moment::kFirst))};
  mesh.world().all_sum(std::span(moments));
  EXPECT_EQ(moments[0] - moments[1], config.vocab_size * config.hidden_size);
}

TEST(TrainingState, ExpertsThatRanksOfANodeReadLieInTheDispatchersMemory) {
  const Mesh mesh = ep_of_all();
  const ModelConfig config = tiny_config();
  DispatcherSettings dispatcher = open_dispatcher(DispatcherKind::kShared, mesh.ep(), config.num_experts);
  EXPECT_EQ(dispatcher.weights_memory(), nullptr);
  dispatcher.rebalance = RebalanceRates();
  EXPECT_EQ(dispatcher.weights_memory(), dispatcher.memory);
  const auto state = make_training_state(config, mesh, {.dispatcher = dispatcher});
  for (const Parameter& parameter : state->store.parameters()) {
    if (parameter.spec.placement == Placement::kExperts && parameter.value.rows > 0) {
      EXPECT_TRUE(dispatcher.memory->offset_of(parameter.value.data)) << parameter.spec.name;
    }
  }
}

TEST(TrainingState, WhatANodeCannotHoldIsAnErrorOnEveryRankWithItsBytes) {
  const Mesh mesh = ep_of_all();
  ModelConfig config = tiny_config();
  config.moe_intermediate_size = Index{1} << 36;
  try {
    make_training_state(config, mesh, {});
    FAIL() << "a model of many terabytes was given";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("the model does not fit into memory"), std::string::npos)
        << error.what();
  }
  config.adapter = resolve_adapter(config, {.rank = 2, .targets = {"attention"}});
  config.adapter->base_stored = Storage::kBf16;
  try {
    make_training_state(config, mesh, {});
    FAIL() << "a model of many terabytes was given";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(", or offload = DIR on a disk for the "), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace moeloom
