// Whole training steps against golden data: losses, gradient norms and final weights of PyTorch's AdamW.
#include "train/sharded_optimizer.hpp"

#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

std::vector<std::vector<Index>> rows_per_expert(const Decoder& decoder, const Communicator& world) {
  std::vector<std::vector<Index>> rows;
  for (const DecoderLayer& layer : decoder.layers()) {
    rows.emplace_back();
    if (layer.moe() == nullptr) continue;
    std::vector<std::int64_t> counts(layer.moe()->experts().activations().plan.tokens_per_expert);
    world.all_sum(counts);
    rows.back().assign(counts.begin(), counts.end());
  }
  return rows;
}

void expect_weights(const ParameterStore& store, const SafetensorsFile& golden, double tolerance) {
  for (const Parameter& parameter : store.parameters())
    for (const HfSlice& slice : parameter.spec.slices) {
      const std::vector<float> expected = golden.floats("final." + slice.name);
      const std::span<const float> got = parameter.value.rows_from(slice.row_begin, slice.rows).flat();
      double gap = 0;
      for (std::size_t i = 0; i < expected.size(); ++i)
        gap = std::max(gap, std::abs(static_cast<double>(got[i]) - expected[i]));
      EXPECT_LE(gap, tolerance) << slice.name;
    }
}

void expect_golden(const std::filesystem::path& folder, MeshShape shape, bool fused) {
  SCOPED_TRACE(folder.filename().string() + " " + shape.text() + (fused ? " fused" : " plain"));
  const Mesh mesh(Communicator::world(), shape);
  testing::GoldenModel model(folder, mesh, testing::kernel_table(fused));
  const SafetensorsFile golden(folder / "golden.safetensors");
  const Document meta = Document::read(folder / "meta.json");
  const Document hyper = meta.object("hyper");
  const std::vector<double> betas = hyper.numbers("betas");
  ASSERT_EQ(betas.size(), 2u) << folder;
  OptimizerSettings settings;
  settings.adamw = {.beta1 = betas[0],
                    .beta2 = betas[1],
                    .epsilon = hyper.number("eps"),
                    .weight_decay = hyper.number("weight_decay")};
  settings.max_grad_norm = hyper.number("max_grad_norm");
  settings.decay_all = true;
  if (meta.text_or("missing_gradient_treatment", "zero") == "skip") settings.starved = StarvedExperts::kSkip;
  ShardedOptimizer optimizer(model.store, mesh, settings);

  const std::vector<Index>& ids_shape = golden.info("input_ids").shape;
  const auto ids = golden.integers("input_ids");
  const auto losses = testing::doubles_in(golden, "loss");
  const auto norms = testing::doubles_in(golden, "grad_norm_before_clip");
  const double aux = model.config.output_router_logits ? model.config.router_aux_loss_coef : 0.0;
  const Index batch_elements = ids_shape[1] * ids_shape[2];
  const auto targets = static_cast<double>(ids_shape[1] * (ids_shape[2] - 1));
  for (Index step = 0; step < ids_shape[0]; ++step) {
    const std::vector<std::int64_t> now(ids.begin() + step * batch_elements,
                                        ids.begin() + (step + 1) * batch_elements);
    const Batch batch = testing::deal(now, now, {}, ids_shape[1], ids_shape[2], mesh.world());
    model.store.restart_gradients();
    MicroBatchLosses got = model.decoder.forward_backward(batch, {.lm = 1.0 / targets, .aux = aux});
    const auto s = static_cast<std::size_t>(step);
    got.routers.sum_over(mesh.world());
    EXPECT_NEAR(got.nll_sum / targets + aux * aux_loss(got.routers), losses[s], 1e-5 * losses[s])
        << "step " << step;
    const auto rows = rows_per_expert(model.decoder, mesh.world());
    optimizer.reduce_gradients();
    const double norm = optimizer.gradient_norm();
    EXPECT_NEAR(norm, norms[s], 1e-5 * norms[s]) << "step " << step;
    optimizer.update(hyper.number("lr"), norm, rows);
  }
  expect_weights(model.store, golden, 0.05 * hyper.number("lr"));
}

TEST(GoldenOptimizer, LossesNormsAndFinalWeightsAgreeOnEveryMeshOfLoopAndGroupedMatmul) {
  const auto cases = testing::golden_cases("optim");
  ASSERT_FALSE(cases.empty());
  for (const auto& folder : cases)
    for (const MeshShape& shape :
         testing::meshes_for(Communicator::world().size(), ModelConfig::read(folder).num_experts))
      for (const bool fused : {false, true}) expect_golden(folder, shape, fused);
}

}  // namespace
}  // namespace moeloom
