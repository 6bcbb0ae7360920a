// Models that make activations again in backward against the same models that keep them.
#include <map>

#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

struct Ran {
  double nll_sum = 0;
  std::map<std::string, std::vector<float>> gradients;
};

/// Two micro-batches, so that buffers of the first serve the second.
Ran run_with(Recompute recompute, const std::filesystem::path& folder, bool fused, const MeshShape& shape) {
  const Mesh mesh(Communicator::world(), shape);
  testing::GoldenModel model(folder, mesh, testing::kernel_table(fused));
  Decoder decoder(model.config, model.store, mesh, testing::kernel_table(fused), {}, {},
                  {.recompute = recompute});
  const Batch batch = testing::golden_batch(folder, mesh.world());
  Ran ran;
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    const auto losses = decoder.forward_backward(batch, {.lm = 0.01, .aux = 0.01});
    ran.nll_sum = losses.nll_sum;
  }
  for (const Parameter& parameter : model.store.parameters())
    ran.gradients[parameter.spec.name].assign(parameter.grad.flat().begin(), parameter.grad.flat().end());
  for (const DecoderLayer& layer : decoder.layers())
    if (layer.moe() != nullptr && recompute != Recompute::kNone) {
      EXPECT_EQ(layer.moe()->experts().activations().experts.rows.rows(), 0) << "no layer keeps them";
    }
  return ran;
}

TEST(RecomputedModel, HasTheLossAndTheGradientsInEveryFamilyBitForBit) {
  const Index world = Communicator::world().size();
  std::map<std::string, std::size_t> compared;
  for (const auto& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    const ModelConfig config = ModelConfig::read(folder);
    const auto shapes = testing::meshes_for(world, std::max<Index>(config.num_experts, 1));
    for (const bool fused : {false, true}) {
      const Ran kept = run_with(Recompute::kNone, folder, fused, shapes.back());
      for (const Recompute recompute : {Recompute::kExperts, Recompute::kBlock}) {
        SCOPED_TRACE(folder.filename().string() + ", " + std::string(name_of(recompute)) +
                     (fused ? ", fused" : ", reference"));
        const Ran again = run_with(recompute, folder, fused, shapes.back());
        EXPECT_EQ(again.nll_sum, kept.nll_sum);
        for (const auto& [name, gradient] : kept.gradients)
          EXPECT_TRUE(again.gradients.at(name) == gradient) << name;
        compared[config.model_type] += kept.gradients.size();
      }
    }
  }
  for (const auto& [family, gradients] : compared) EXPECT_GT(gradients, 0u) << family;
  EXPECT_FALSE(compared.empty());
}

}  // namespace
}  // namespace moeloom
