#include "train/starved_parameters.hpp"

#include <algorithm>

#include "sharded_run.hpp"
#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

/// In two steps each, in every layer.
std::vector<std::vector<Index>> rows_of_all(const ModelConfig& config) {
  return {at(config.num_hidden_layers), std::vector<Index>(at(config.num_experts), 2)};
}

TEST(WithoutGradient, FindsNothingWhereAllIsTrained) {
  for (const MeshShape& shape : meshes_of_every_size()) {
    TrainingRun run(shape, {});
    run.losses(1);
    EXPECT_TRUE(without_gradient(run.store, run.optimizer, run.mesh, rows_of_all(run.config)).empty())
        << shape.text();
  }
}

TEST(WithoutGradient, NamesAParameterOfWhichNoRankLearnt) {
  const std::string lost = "model.layers.1.mlp.down_proj.weight",
                    experts = "model.layers.2.mlp.experts.down_proj";
  for (const MeshShape& shape : meshes_of_every_size()) {
    TrainingRun run(shape, {});
    run.losses(1);
    for (const OwnedBlock& block : run.optimizer.owned_blocks()) {
      const ParameterSpec& spec = run.store.parameters()[at(block.parameter)].spec;
      const bool of_expert = spec.name == experts && spec.group_ids[at(block.group)] % 2 == 1;
      if (spec.name == lost || of_expert)
        std::ranges::fill(
            run.optimizer.moments().words(Moment::kSecond).subspan(at(block.state), at(block.count)), 0.0f);
    }
    auto rows = rows_of_all(run.config);
    rows[2][3] = 1;
    const auto found = without_gradient(run.store, run.optimizer, run.mesh, rows);
    ASSERT_EQ(found.size(), 3u) << shape.text();
    EXPECT_EQ(found[0].parameter, lost);
    EXPECT_EQ(found[0].expert, -1);
    EXPECT_EQ(found[1].parameter, experts);
    EXPECT_EQ(found[1].expert, 1);
    EXPECT_FALSE(found[1].starved);
    EXPECT_EQ(found[2].expert, 3);
    EXPECT_TRUE(found[2].starved) << "what its A needs is the second";
  }
}

TEST(WithoutGradient, LeavesOutWhatIsFrozen) {
  TrainingRun run(shape_of(1, 1), {.frozen = {"model.norm.weight", "lm_head.weight"}});
  run.losses(1);
  EXPECT_TRUE(without_gradient(run.store, run.optimizer, run.mesh, rows_of_all(run.config)).empty());
}

}  // namespace
}  // namespace moeloom
