// Dropout of adapters in every family, one module at a time: an adapter does not change what it reads itself,
// so that its masks stay, and its gradients are those of finite differences. Where two are adapted, the first
// one's numbers change the rows and so the masks of the second.
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/random.hpp"

#include <cmath>
#include <map>
#include <set>

#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// With one module adapted, whose factors are both numbers.
struct DroppingModel {
  ModelConfig config;
  ParameterStore store;
  Decoder decoder;
  const Parameter* a = nullptr;
  const Parameter* b = nullptr;

  DroppingModel(const ModelConfig& adapted, const testing::GoldenModel& golden, const Mesh& mesh,
                const KernelTable& kernels)
      : config(adapted),
        store(parameter_specs(config, mesh.experts(std::max<Index>(config.num_experts, 1)))),
        decoder(config, store, mesh, kernels) {
    for (const Parameter& parameter : golden.store.parameters())
      copy(parameter.value, store.find(parameter.spec.name).value);
    for (const Parameter& parameter : store.parameters()) {
      if (!parameter.spec.adapter) continue;
      (parameter.spec.adapter->is_a ? a : b) = &parameter;
      for (const HfSlice& slice : parameter.spec.slices) fill_with(parameter, slice, parameter.value, 0.2);
    }
    store.mark_changed();
  }

  /// By the slice's name, and so the same on every mesh.
  static void fill_with(const Parameter& parameter, const HfSlice& slice, MatrixView values, double scale) {
    const CounterRandom random(7, stream_of(slice.name));
    const MatrixView rows = values.rows_from(slice.row_begin, slice.rows);
    for (Index i = 0; i < rows.size(); ++i)
      rows.data[i] = static_cast<float>(scale * random.normal(static_cast<std::uint64_t>(i)));
    ASSERT_EQ(rows.cols, parameter.spec.cols);
  }
};

/// Modules that are one product: of a list of experts one stands for all.
std::vector<std::string> products_of(const ModelConfig& config) {
  std::set<std::set<std::string>> seen;
  std::vector<std::string> first;
  for (const AdaptableModule& module : adaptable_modules(config)) {
    const auto found = resolve_adapter(config, {.targets = {module.name}}).modules;
    if (seen.insert(found).second) first.push_back(module.name);
  }
  return first;
}

/// With the experts that were chosen last: a token that changes its experts jumps.
Batch with_choices(Batch batch, const Decoder& decoder) {
  for (const DecoderLayer& layer : decoder.layers())
    if (layer.moe() != nullptr) batch.given_topk_idx.push_back(layer.moe()->routing().topk_idx);
  return batch;
}

/// Whether the derivative of the loss along a direction of one factor is the same by its gradient and by
/// differences. A clamp or a limit of nearness inside a step spoils it, so one of several is enough.
bool has_derivative(DroppingModel& model, const Parameter& factor, const Batch& batch,
                    const LossScales& scales, const Mesh& mesh) {
  Matrix direction(factor.value.rows, factor.value.cols);
  for (const HfSlice& slice : factor.spec.slices) {
    HfSlice other = slice;
    other.name += ".direction";
    DroppingModel::fill_with(factor, other, direction, 1);
  }
  double by_gradient = 0;
  for (Index i = 0; i < direction.view().size(); ++i)
    by_gradient += static_cast<double>(factor.grad.data[i]) * direction.view().data[i];
  mesh.world().all_sum(std::span(&by_gradient, 1));  // of experts too: each rank's are of its rows alone
  const Matrix before = Matrix::copy_of(factor.value);
  const auto loss_at = [&](float step) {
    for (Index i = 0; i < before.view().size(); ++i)
      factor.value.data[i] = before.view().data[i] + step * direction.view().data[i];
    model.store.mark_changed();
    return model.decoder.forward_backward(batch, scales).nll_sum * scales.lm;
  };
  bool agrees = false;
  for (float step = 4e-3f; step > 4e-5f && !agrees; step /= 2) {
    const double slope = (loss_at(step) - loss_at(-step)) / (2.0 * step);
    agrees = std::abs(by_gradient - slope) <= 1e-3 + 0.01 * std::abs(by_gradient);
  }
  copy(before, factor.value);
  return agrees;
}

std::size_t expect_dropping_gradients(const std::filesystem::path& folder, bool fused,
                                      const MeshShape& shape) {
  SCOPED_TRACE(folder.filename().string() + (fused ? " fused " : " reference ") + shape.text());
  const Mesh mesh(Communicator::world(), shape);
  const KernelTable kernels = testing::kernel_table(fused);
  testing::GoldenModel golden(folder, mesh, kernels);
  const Batch batch = testing::golden_batch(folder, mesh.world());
  std::int64_t targets = batch.counted_targets();
  mesh.world().all_sum(std::span(&targets, 1));
  const LossScales scales{.lm = 1.0 / static_cast<double>(targets)};
  std::size_t compared = 0;
  for (const std::string& module : products_of(golden.config)) {
    ModelConfig config = golden.config;
    config.adapter = resolve_adapter(config, {.rank = 3, .alpha = 6, .dropout = 0.4, .targets = {module}});
    DroppingModel model(config, golden, mesh, kernels);
    const double whole = model.decoder.forward_backward(batch, scales).nll_sum;
    for (const Parameter* factor : {model.a, model.b}) {
      bool agrees = false;  // where a limit is too near, by other masks
      for (std::uint64_t seed = 0; seed < 3 && !agrees; ++seed) {
        model.store.drop_inputs(seed);
        EXPECT_NE(model.decoder.forward_backward(batch, scales).nll_sum, whole) << module << " drops nothing";
        const Batch given = with_choices(batch, model.decoder);
        model.store.restart_gradients();
        model.decoder.forward_backward(given, scales);
        agrees = has_derivative(model, *factor, given, scales, mesh);
      }
      EXPECT_TRUE(agrees) << factor->spec.name;
      ++compared;
    }
  }
  return compared;
}

TEST(AdapterDropout, HasTheGradientsOfFiniteDifferencesInEveryFamily) {
  const Index world = Communicator::world().size();
  // On several ranks, which wait for each other at every difference, some that have most parts between them.
  const std::set<std::string> few = {"deepseek_v3", "gemma4_text", "laguna"};
  std::map<std::string, std::size_t> compared;
  for (const auto& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    const ModelConfig config = ModelConfig::read(folder);
    if ((world > 1 && !few.contains(config.model_type)) || compared[config.model_type] > 0) continue;
    MeshShape shape = testing::meshes_for(world, std::max<Index>(config.num_experts, 1)).back();
    compared[config.model_type] += expect_dropping_gradients(folder, true, shape);
  }
  for (const auto& [family, factors] : compared) EXPECT_GT(factors, 0u) << family;
}

TEST(AdapterDropout, IsWrittenForPeftAndReadAgain) {
  ModelConfig config = testing::tiny_config();
  config.adapter = resolve_adapter(config, {.rank = 2, .dropout = 0.25});
  const Document document = adapter_document(config);
  EXPECT_EQ(document.number("lora_dropout"), 0.25);
  TensorShapes tensors;
  for (const TensorSpec& tensor : adapter_tensor_specs(config)) tensors[tensor.name] = tensor.shape;
  EXPECT_EQ(adapter_settings(document, tensors, config, "file").dropout, 0.25);
  for (const double wrong : {-0.1, 1.0}) {
    Document other = document;
    other.set("lora_dropout", wrong);
    EXPECT_THROW(adapter_settings(other, tensors, config, "file"), ConfigError) << wrong;
    EXPECT_THROW(resolve_adapter(testing::tiny_config(), {.dropout = wrong}), ConfigError) << wrong;
  }
}

TEST(AdapterDropout, DropsNothingUnlessAStepIsUnderWay) {
  ModelConfig config = testing::tiny_config();
  config.adapter = resolve_adapter(config, {.rank = 2, .dropout = 0.25});
  ParameterStore store(parameter_specs(config, {0, config.num_experts}));
  EXPECT_EQ(store.dropout().share, 0);
  store.drop_inputs(3);
  EXPECT_EQ(store.dropout().share, 0.25);
  EXPECT_EQ(store.dropout().seed, 3u);
  store.keep_inputs();
  EXPECT_EQ(store.dropout().share, 0);
}

}  // namespace
}  // namespace moeloom
