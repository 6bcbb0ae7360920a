// Models whose weights are kept in halves against the same models in floats: products read the same numbers,
// so every bit of loss and gradients is the same.
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/parts/node_halves.hpp"
#include "moeloom/base/errors.hpp"

#include <set>

#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

float in_bf16(float value) {
  return bf16_to_float(split(value).high);
}
float in_f16(float value) {
  return f16_to_float(float_to_f16(value));
}

/// Floats that 16 bits have, as products see them.
void round(ParameterStore& store, float (*nearest)(float)) {
  for (const Parameter& parameter : store.parameters())
    for (float& value : parameter.value.flat()) value = nearest(value);
  store.mark_changed();
}

void take(ParameterStore& store, const ParameterStore& floats) {
  for (const Parameter& parameter : floats.parameters())
    store.find(parameter.spec.name).stored().write(parameter.value.flat());
  store.mark_changed();
}

/// exact: weights of which `rounded` has the nearest in bf16.
void expect_the_bits_of_floats(const std::filesystem::path& folder, MeshShape shape, bool fused) {
  SCOPED_TRACE(folder.filename().string() + (fused ? " fused " : " reference ") + shape.text());
  const Mesh mesh(Communicator::world(), shape);
  const KernelTable kernels = testing::kernel_table(fused);
  const testing::GoldenModel exact(folder, mesh, kernels);
  testing::GoldenModel rounded(folder, mesh, kernels);
  round(rounded.store, in_bf16);
  const Batch batch = testing::golden_batch(folder, mesh.world());
  const LossScales scales{.lm = 0.01, .aux = 0.01};
  rounded.store.restart_gradients();
  const auto expected = rounded.decoder.forward_backward(batch, scales);
  const ModelConfig& config = rounded.config;
  const ExpertRange experts = mesh.experts(std::max<Index>(config.num_experts, 1));
  for (const Storage storage : {Storage::kSplit, Storage::kBf16}) {
    SCOPED_TRACE(name_of(storage));
    ParameterStore store(with_storage(parameter_specs(config, experts), storage));
    Decoder same(config, store, mesh, kernels);
    take(store, storage == Storage::kSplit ? exact.store : rounded.store);
    for (const Parameter& parameter : store.parameters())  // what is not stored so has no lower half
      if (parameter.halves.data == nullptr)
        copy(rounded.store.find(parameter.spec.name).value, parameter.value);
    store.restart_gradients();
    EXPECT_EQ(same.forward_backward(batch, scales).nll_sum, expected.nll_sum);
    Index halved = 0;
    for (const Parameter& parameter : store.parameters()) {
      halved += parameter.halves.data != nullptr ? 1 : 0;
      EXPECT_TRUE(
          std::ranges::equal(parameter.grad.flat(), rounded.store.find(parameter.spec.name).grad.flat()))
          << parameter.spec.name;
    }
    EXPECT_GE(halved, 4) << "embedding, attention, experts";
  }
}

/// Large weights rest in F16, and gradients are those of the others.
void expect_the_bits_of_floats_in_f16(const std::filesystem::path& folder, MeshShape shape, bool fused) {
  SCOPED_TRACE(folder.filename().string() + (fused ? " fused " : " reference ") + shape.text());
  const Mesh mesh(Communicator::world(), shape);
  const KernelTable kernels = testing::kernel_table(fused);
  testing::GoldenModel rounded(folder, mesh, kernels);
  round(rounded.store, in_f16);
  const Batch batch = testing::golden_batch(folder, mesh.world());
  const LossScales scales{.lm = 0.01, .aux = 0.01};
  rounded.store.restart_gradients();
  const auto expected = rounded.decoder.forward_backward(batch, scales);
  const ModelConfig& config = rounded.config;
  auto specs = parameter_specs(config, mesh.experts(std::max<Index>(config.num_experts, 1)));
  const auto large = with_storage(specs, Storage::kBf16);
  std::set<std::string> resting;
  for (std::size_t i = 0; i < specs.size(); ++i)
    if (large[i].stored == Storage::kBf16) {
      specs[i].frozen = true;
      resting.insert(specs[i].name);
    }
  specs = with_storage(std::move(specs), Storage::kFp32, Storage::kF16);
  const auto halves = shared_halves(mesh.node(), specs);  // once for the ranks of a node
  ParameterStore store(specs, {.halves = halves});
  Decoder same(config, store, mesh, kernels);
  for (const Parameter& parameter : store.parameters())
    if (parameter.is_filled_here)
      parameter.stored().write(rounded.store.find(parameter.spec.name).value.flat());
  store.mark_changed();
  mesh.world().barrier();
  store.restart_gradients();
  EXPECT_EQ(same.forward_backward(batch, scales).nll_sum, expected.nll_sum);
  Index halved = 0;
  for (const Parameter& parameter : store.parameters()) {
    const bool rests = parameter.weights().type() == DType::kF16;
    halved += rests ? 1 : 0;
    EXPECT_EQ(rests, resting.contains(parameter.spec.name)) << parameter.spec.name;
    EXPECT_TRUE(
        parameter.spec.frozen ||
        std::ranges::equal(parameter.grad.flat(), rounded.store.find(parameter.spec.name).grad.flat()))
        << parameter.spec.name;
  }
  EXPECT_GE(halved, 4) << "embedding, attention, experts";
  mesh.world().barrier();  // before the memory goes that others read
}

TEST(StoredModels, HaveTheBitsOfFloatsInEveryGoldenModel) {
  const Index world = Communicator::world().size();
  for (const auto& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    const ModelConfig config = ModelConfig::read(folder);
    const auto shapes = testing::meshes_for(world, std::max<Index>(config.num_experts, 1));
    for (const MeshShape& shape : shapes)
      for (const bool fused : testing::fused_on(shape, shapes)) {
        expect_the_bits_of_floats(folder, shape, fused);
        expect_the_bits_of_floats_in_f16(folder, shape, fused);
      }
  }
}

TEST(StoredModels, AreKeptAsTheirPlaceInTrainingSays) {
  const ModelConfig config = testing::tiny_config();
  const auto specs = parameter_specs(config, {0, config.num_experts});
  const auto stored = [](const std::vector<ParameterSpec>& all, const std::string& name) {
    return std::ranges::find(all, name, &ParameterSpec::name)->stored;
  };
  const std::string experts = "model.layers.0.mlp.experts.down_proj",
                    router = "model.layers.0.mlp.gate.weight", norm = "model.norm.weight",
                    head = "lm_head.weight";
  const auto split = with_storage(specs, Storage::kSplit);
  EXPECT_EQ(stored(split, experts), Storage::kSplit);
  EXPECT_EQ(stored(split, head), Storage::kSplit);
  EXPECT_EQ(stored(split, router), Storage::kFp32);
  EXPECT_EQ(stored(split, norm), Storage::kFp32);
  auto frozen = specs;
  for (ParameterSpec& spec : frozen) spec.frozen = spec.name == experts;
  EXPECT_EQ(stored(with_storage(frozen, Storage::kSplit), experts), Storage::kFp32);
  for (const Storage resting : {Storage::kBf16, Storage::kF16}) {
    EXPECT_EQ(stored(with_storage(frozen, Storage::kSplit, resting), experts), resting);
    EXPECT_EQ(stored(with_storage(frozen, Storage::kSplit, resting), head), Storage::kSplit);
  }
  EXPECT_THROW(ParameterStore(with_storage(specs, Storage::kF16)), ShapeError) << "no update rounds to it";
}

/// Gradients of all that is trained lie together, those of floats first; halves lie as theirs.
TEST(StoredModels, LieAsTheirGradientsDo) {
  const ModelConfig config = testing::tiny_config();
  auto specs = parameter_specs(config, {0, config.num_experts});
  for (ParameterSpec& spec : specs) spec.frozen = spec.name.find("q_proj") != std::string::npos;
  for (const Storage storage : {Storage::kSplit, Storage::kBf16}) {
    ParameterStore store(with_storage(specs, storage, Storage::kBf16));
    for (const Parameter& parameter : store.parameters()) {
      SCOPED_TRACE(parameter.spec.name);
      if (parameter.spec.frozen) continue;
      const Placement placement = parameter.spec.placement;
      EXPECT_EQ(parameter.grad.data, store.gradients(placement).data() + parameter.offset);
      const auto [begin, high, low] = store.trained_halves(placement);
      const bool is_half = parameter.halves.data != nullptr;
      EXPECT_EQ(is_half, parameter.offset >= begin);
      if (!is_half) {
        EXPECT_EQ(parameter.value.data, store.values(placement).data() + parameter.offset);
        continue;
      }
      EXPECT_EQ(parameter.halves.data, high.data() + parameter.offset - begin);
      EXPECT_EQ(parameter.lows, storage == Storage::kSplit ? low.data() + parameter.offset - begin : nullptr);
    }
  }
}

}  // namespace
}  // namespace moeloom
