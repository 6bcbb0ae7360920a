// A small model of every family: exact sums give its losses, norms and weights the same bits on every mesh.
#include "model/hf/family_models.hpp"

#include "training_run.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

TrainingRunSettings run_of(ModelConfig config) {
  config.vocab_size = 256;  // the text's bytes
  if (config.hidden_size_per_layer_input > 0) config.vocab_size_per_layer_input = 256;
  return {.global_batch = 4,
          .z_loss_coef = config.has_z_loss() ? 0.001 : 0,
          .experts = config.num_experts,
          .exact = 1,
          .model = config};
}

/// Of steps their losses and norms, and a validation; weights are in the next one's.
std::vector<double> losses_of(const MeshShape& shape, const TrainingRunSettings& settings) {
  TrainingRun run(shape, settings);
  std::vector<double> losses = run.losses(3);
  losses.push_back(run.trainer.evaluate(run.sampler.heldout(7, 2, run.mesh.world().rank())));
  return losses;
}

TEST(FamilyRuns, HaveTheSameBitsOnEveryMeshAndWhereActivationsAreMadeAgain) {
  for (const ModelConfig& config : loud_family_models(Communicator::world().size())) {
    TrainingRunSettings settings = run_of(config);
    const std::vector<double> alone = losses_of(shape_of(1, 1), settings);
    ASSERT_TRUE(std::ranges::all_of(alone, [](double x) { return std::isfinite(x); })) << config.model_type;
    for (const MeshShape& shape :
         meshes_for(Communicator::world().size(), std::max<Index>(config.num_experts, 1)))
      for (const Recompute recompute : {Recompute::kNone, Recompute::kBlock}) {
        settings.recompute = recompute;
        EXPECT_EQ(losses_of(shape, settings), alone)
            << config.model_type << ", " << name_of(shape) << ", " << name_of(recompute);
      }
  }
}

}  // namespace
}  // namespace moeloom
