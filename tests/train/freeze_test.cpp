// Frozen parameters through the whole of a step, at every mesh: what is trained does not notice, and what is
// not does not move.
#include "model/freeze.hpp"

#include "model/hf/parameters/parameter_specs.hpp"

#include <cmath>

#include "sharded_run.hpp"
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

/// Names of parameters, by patterns.
std::set<std::string> named(const NamePatterns& patterns) {
  return matching_parameters(parameter_specs(tiny_config(), {0, tiny_config().num_experts}), patterns);
}

const std::vector<NamePatterns> kChoices = {
    {"model.embed_tokens.weight"},
    {"lm_head.weight"},
    {"*norm*"},
    {"*self_attn*"},
    {"*experts*"},
    {"*.mlp.gate.weight"},
    {"model.layers.1.*", "lm_head.weight"},
    {"model.embed_tokens.weight", "*self_attn*", "model.layers.1.mlp.*", "lm_head.weight"},
};

double norm_of(const std::map<std::string, std::vector<double>>& gradients) {
  double sum = 0;
  for (const auto& [name, gradient] : gradients)
    for (const double g : gradient) sum += g * g;
  return std::sqrt(sum);
}

TEST(Freeze, LeavesTheOtherGradientsAsTheyWere) {
  const auto all = TrainingRun(shape_of(1, 1), {}).gradients(0.01);
  for (const NamePatterns& patterns : kChoices) {
    const auto some = TrainingRun(shape_of(1, 1), {.frozen = named(patterns)}).gradients(0.01);
    EXPECT_LT(some.size(), all.size());
    for (const auto& [name, gradient] : some) EXPECT_EQ(gradient, all.at(name)) << patterns[0] << name;
  }
}

TEST(Freeze, KeepsEveryBitOfTheFrozenAndTrainsTheRestAlikeOnEveryMesh) {
  for (const NamePatterns& patterns : {kChoices[2], kChoices.back()}) {
    const TrainingRunSettings settings{.frozen = named(patterns)};
    TrainingRun one(shape_of(1, 1), settings);
    const std::vector<double> alone = one.losses(3);
    EXPECT_NEAR(alone[1], norm_of(TrainingRun(shape_of(1, 1), settings).gradients(0.01)), 1e-3 * alone[1])
        << "the norm is that of what is trained (the z loss is small)";
    for (const MeshShape& shape : meshes_of_every_size()) {
      TrainingRun run(shape, settings);
      const TrainingRun start(shape, {});
      const std::vector<double> losses = run.losses(3);
      for (std::size_t i = 0; i < losses.size(); ++i)
        EXPECT_NEAR(losses[i], alone[i], 1e-5 * alone[i]) << name_of(shape) << patterns[0];
      for (const Parameter& parameter : run.store.parameters()) {
        const auto before = start.store.find(parameter.spec.name).value.flat();
        EXPECT_EQ(std::ranges::equal(parameter.value.flat(), before), parameter.spec.frozen)
            << parameter.spec.name;
      }
    }
  }
}

/// The first expert weight, a norm and the last dense weight of the model by hand.
std::vector<ParameterSpec> partly_frozen(ExpertRange here) {
  return with_frozen(sparse_model(here), {"experts.0.gate_up", "scale", "head"});
}

TEST(Freeze, HasNoOptimizerStateAndTheSameNormBitsAtEveryEp) {
  std::optional<double> norm;
  for (const MeshShape& shape : meshes_of(Communicator::world().size())) {
    ShardedRun run(shape, partly_frozen);
    const double first = run.step(from_the_last, 0);
    if (!norm) norm = first;
    EXPECT_EQ(first, *norm) << name_of(shape);
    Index owned = 0;
    for (const OwnedBlock& block : run.optimizer.owned_blocks()) {
      EXPECT_FALSE(run.store.parameters()[at(block.parameter)].spec.frozen);
      owned += block.count;
    }
    EXPECT_EQ(std::ssize(run.optimizer.moments().words(Moment::kFirst)), owned);
    EXPECT_EQ(std::ssize(run.optimizer.moments().words(Moment::kSecond)), owned);
    run.each_element([&](Index p, Index element, float& value, float&) {
      if (run.store.parameters()[at(p)].spec.frozen) {
        ASSERT_EQ(value, start_weight(p, element));
      }
    });
  }
}

}  // namespace
}  // namespace moeloom
