// Models with adapters against the same models with merged weights, whose gradients say what the factors'
// must be: dA = s B^T dW and dB = s dW A^T.
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/adapter.hpp"
#include "model/hf/weights/initialise.hpp"
#include "moeloom/base/random.hpp"

#include <cmath>
#include <iostream>
#include <map>
#include <set>

#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

/// Everything in a model that can have an adapter; without modules where nothing can.
AdapterSettings all_targets(const ModelConfig& config) {
  AdapterSettings settings{.rank = 3, .alpha = 5, .targets = {"*"}};
  if (adaptable_modules(config).empty()) return settings;
  return resolve_adapter(config, settings);
}

ModelConfig with_adapter(ModelConfig config) {
  config.adapter = all_targets(config);
  return config;
}

struct AdaptedModel {
  ModelConfig config;
  ParameterStore store;
  Decoder decoder;

  /// B begins as numbers, or nothing would come of A.
  AdaptedModel(const ModelConfig& like, const Mesh& mesh, const KernelTable& kernels)
      : config(with_adapter(like)),
        store(parameter_specs(config, mesh.experts(std::max<Index>(config.num_experts, 1)))),
        decoder(config, store, mesh, kernels) {
    for (const Parameter& parameter : store.parameters()) {
      if (!parameter.spec.adapter) continue;
      for (const HfSlice& slice : parameter.spec.slices) {
        const CounterRandom random(7, stream_of(slice.name));
        const MatrixView rows = parameter.value.rows_from(slice.row_begin, slice.rows);
        for (Index i = 0; i < rows.size(); ++i)
          rows.data[i] = static_cast<float>(0.3 * random.normal(static_cast<std::uint64_t>(i)));
      }
    }
  }

  void take_base(const ParameterStore& base) {
    for (const Parameter& parameter : base.parameters())
      copy(parameter.value, store.find(parameter.spec.name).value);
    store.mark_changed();
  }
};

/// The factors of one module of one parameter, and what it adds to.
struct Pair {
  const Parameter& a;
  const Parameter& b;
  const Parameter& base;  // of the model with merged weights
  Index groups() const { return base.spec.groups; }
  Index rank() const { return b.spec.cols; }
  MatrixView rows_of_base(MatrixView all, Index group) const {
    return all.rows_from(group * (base.spec.rows / groups()) + a.spec.adapter->row, b.spec.rows / groups());
  }
};

std::vector<Pair> pairs_of(const ParameterStore& adapted, const ParameterStore& merged) {
  std::vector<Pair> pairs;
  const auto& all = adapted.parameters();
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].spec.adapter && all[i].spec.adapter->is_a)
      pairs.push_back({all[i], all.at(i + 1), merged.find(all[i].spec.adapter->base)});
  return pairs;
}

void merge_by_hand(const std::vector<Pair>& pairs) {
  for (const Pair& pair : pairs)
    for (Index group = 0; group < pair.groups(); ++group) {
      const MatrixView w = pair.rows_of_base(pair.base.value, group);
      const MatrixView a = pair.a.value.rows_from(group * pair.rank(), pair.rank());
      const MatrixView b = pair.b.value.rows_from(group * w.rows, w.rows);
      for (Index i = 0; i < w.rows; ++i)
        for (Index j = 0; j < w.cols; ++j) {
          double sum = 0;
          for (Index k = 0; k < pair.rank(); ++k) sum += static_cast<double>(b(i, k)) * a(k, j);
          w(i, j) = static_cast<float>(w(i, j) + pair.a.spec.adapter->scale * sum);
        }
    }
}

/// max |got - expected| / max |expected|, of all groups of a pair.
struct FactorErrors {
  double difference = 0, largest = 0;
  void see(double got, double expected) {
    difference = std::max(difference, std::abs(got - expected));
    largest = std::max(largest, std::abs(expected));
  }
  double relative() const { return largest == 0 ? difference : difference / largest; }
};

void expect_factor_gradients(const Pair& pair) {
  FactorErrors of_a, of_b;
  const double s = pair.a.spec.adapter->scale;
  for (Index group = 0; group < pair.groups(); ++group) {
    const MatrixView d_w = pair.rows_of_base(pair.base.grad, group);
    const Index first_a = group * pair.rank(), first_b = group * d_w.rows;
    for (Index k = 0; k < pair.rank(); ++k)
      for (Index j = 0; j < d_w.cols; ++j) {
        double sum = 0;
        for (Index i = 0; i < d_w.rows; ++i)
          sum += static_cast<double>(pair.b.value(first_b + i, k)) * d_w(i, j);
        of_a.see(pair.a.grad(first_a + k, j), s * sum);
      }
    for (Index i = 0; i < d_w.rows; ++i)
      for (Index k = 0; k < pair.rank(); ++k) {
        double sum = 0;
        for (Index j = 0; j < d_w.cols; ++j)
          sum += static_cast<double>(d_w(i, j)) * pair.a.value(first_a + k, j);
        of_b.see(pair.b.grad(first_b + i, k), s * sum);
      }
  }
  // Loud factors and products in another order: 1.3e-4 in a delta net, a tenth of it elsewhere.
  EXPECT_LE(of_a.relative(), 4e-4) << pair.a.spec.name;
  EXPECT_LE(of_b.relative(), 4e-4) << pair.b.spec.name;
}

/// -> how many pairs of factors were compared.
std::size_t expect_like_merged(const std::filesystem::path& folder, bool fused, MeshShape shape) {
  SCOPED_TRACE(folder.filename().string() + (fused ? " fused " : " reference ") + shape.text());
  const Mesh mesh(Communicator::world(), shape);
  const KernelTable kernels = testing::kernel_table(fused);
  testing::GoldenModel merged(folder, mesh, kernels);
  AdaptedModel adapted(merged.config, mesh, kernels);
  if (adapted.config.adapter->modules.empty()) return 0;
  adapted.take_base(merged.store);
  const std::vector<Pair> pairs = pairs_of(adapted.store, merged.store);
  merge_by_hand(pairs);
  merged.store.mark_changed();
  const Batch batch = testing::golden_batch(folder, mesh.world());
  std::int64_t targets = batch.counted_targets();
  mesh.world().all_sum(std::span(&targets, 1));
  const LossScales scales{.lm = 1.0 / static_cast<double>(targets), .aux = 0.01};
  const auto expected = merged.decoder.forward_backward(batch, scales);
  const auto found = adapted.decoder.forward_backward(batch, scales);
  EXPECT_NEAR(found.nll_sum, expected.nll_sum, 1e-5 * std::abs(expected.nll_sum));
  for (const Pair& pair : pairs) expect_factor_gradients(pair);
  return pairs.size();
}

TEST(AdapterModel, HasTheLossAndTheGradientsOfMergedWeightsInEveryFamily) {
  const Index world = Communicator::world().size();
  std::map<std::string, std::size_t> compared;
  for (const auto& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    const ModelConfig config = ModelConfig::read(folder);
    const auto shapes = testing::meshes_for(world, std::max<Index>(config.num_experts, 1));
    for (const MeshShape& shape : shapes)
      for (const bool fused : testing::fused_on(shape, shapes))
        compared[config.model_type] += expect_like_merged(folder, fused, shape);
  }
  for (const auto& [family, pairs] : compared) EXPECT_GT(pairs, 0u) << family << ": nothing could be adapted";
}

/// Matrices that PEFT's LoRA of linear layers is not for, or not here.
const NamePatterns kWithoutAdapter = {"*embed_tokens*", "lm_head.weight", "*.conv.weight", "*.conv1d.weight",
                                      "*.shared_expert_gate.weight"};

TEST(AdapterModel, AddsToEveryOtherProductInEveryFamily) {
  std::set<std::string> kinds;
  for (const auto& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    SCOPED_TRACE(folder.filename().string());
    const ModelConfig config = with_adapter(ModelConfig::read(folder));
    std::set<std::string> adapted;
    for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
      if (spec.adapter) adapted.insert(spec.adapter->base);
    for (const ParameterSpec& spec : own_parameters(config))
      EXPECT_TRUE(!spec.is_matrix || adapted.contains(spec.name) || matches_any(kWithoutAdapter, spec.name))
          << spec.name;
    for (const AdaptableModule& module : adaptable_modules(config)) kinds.insert(module.kind);
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"attention", "experts", "mlp", "per_layer", "router", "shared"}));
}

TEST(AdapterModel, FreezesAllThatIsItsOwn) {
  const ModelConfig config = with_adapter(testing::tiny_config());
  Index trained = 0;
  for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts})) {
    EXPECT_EQ(spec.frozen, !spec.adapter) << spec.name;
    if (!spec.frozen) trained += spec.rows * spec.cols;
  }
  Index in_file = 0;
  for (const TensorSpec& tensor : adapter_tensor_specs(config)) in_file += tensor.shape[0] * tensor.shape[1];
  EXPECT_EQ(trained, in_file);
}

TEST(AdapterModel, BeginsAsTheModelItself) {
  const ModelConfig config = with_adapter(testing::tiny_config());
  ParameterStore store(parameter_specs(config, {0, config.num_experts}));
  initialise_adapter(store, config, 3);
  for (const Parameter& parameter : store.parameters()) {
    if (!parameter.spec.adapter) continue;
    double largest = 0;
    for (const float number : parameter.value.flat())
      largest = std::max(largest, std::abs(static_cast<double>(number)));
    if (!parameter.spec.adapter->is_a) {
      EXPECT_EQ(largest, 0) << parameter.spec.name;
      continue;
    }
    const double bound = 1 / std::sqrt(static_cast<double>(parameter.spec.cols));
    EXPECT_LE(largest, bound) << parameter.spec.name;
    EXPECT_GT(largest, 0.7 * bound) << parameter.spec.name;
  }
}

}  // namespace
}  // namespace moeloom
