#include "moeloom/model/parameters.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/io/safetensors.hpp"

#include <cmath>
#include <map>

#include "support/golden.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using Values = std::map<std::string, std::vector<float>>;

std::vector<ModelConfig> configs() {
  std::vector<ModelConfig> list(4, testing::small_config());
  list[1].tie_word_embeddings = true;
  list[2].num_experts = 0;
  list[3].mlp_only_layers = {0, 1, 2};
  return list;
}

/// Values by HF name.
void collect(const ParameterStore& store, Values& values) {
  for (const Parameter& parameter : store.parameters())
    for (const HfSlice& slice : parameter.spec.slices) {
      const auto part = parameter.value.rows_from(slice.row_begin, slice.rows).flat();
      values[slice.name].assign(part.begin(), part.end());
    }
}

Values initial_values(const ModelConfig& config, Index ep, std::uint64_t seed) {
  Values values;
  for (Index rank = 0; rank < ep; ++rank) {
    ParameterStore store(parameter_specs(config, experts_of(config.num_experts, ep, rank)));
    initialise(store, config, seed);
    collect(store, values);
  }
  return values;
}

TEST(ParameterSpecs, NameEveryTensorOfGoldenModelsWithItsShape) {
  for (const auto& folder : testing::golden_cases("models")) {
    const ModelConfig config = ModelConfig::read(folder);
    std::map<std::string, std::vector<Index>> ours, theirs;
    for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
      for (const HfSlice& slice : spec.slices) ours[slice.name] = slice.shape;
    const SafetensorsFile file(folder / "model.safetensors");
    for (const auto& [name, info] : file.tensors()) theirs[name] = info.shape;
    EXPECT_EQ(ours, theirs) << folder;
  }
}

TEST(ParameterSpecs, SlicesCoverEachRowOnce) {
  for (const ModelConfig& config : configs())
    for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts})) {
      Index row = 0;
      for (const HfSlice& slice : spec.slices) {
        EXPECT_EQ(slice.row_begin, row) << slice.name;
        Index elements = 1;
        for (const Index size : slice.shape) elements *= size;
        EXPECT_EQ(elements, slice.rows * spec.cols) << slice.name;
        row += slice.rows;
      }
      EXPECT_EQ(row, spec.rows) << spec.name;
    }
}

TEST(ParameterSpecs, GiveARankItsExpertsUnderTheirGlobalIds) {
  const ModelConfig config = testing::small_config();
  for (const ParameterSpec& spec : parameter_specs(config, {3, 2})) {
    if (spec.placement != Placement::kExperts) continue;
    EXPECT_EQ(spec.groups, 2);
    EXPECT_EQ(spec.first_group, 3);
    EXPECT_EQ(spec.total_groups, 5);
    EXPECT_EQ(spec.rows % spec.groups, 0);
    EXPECT_NE(spec.slices.front().name.find("experts.3."), std::string::npos);
    EXPECT_NE(spec.slices.back().name.find("experts.4."), std::string::npos);
  }
}

TEST(ParameterSpecs, OfADenseModelHaveNoExperts) {
  for (const ModelConfig& config : {configs()[2], configs()[3]})
    for (const ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
      EXPECT_EQ(spec.placement, Placement::kWorld) << spec.name;
}

TEST(ParameterStore, PacksEachPlacementBackToBack) {
  for (const ModelConfig& config : configs())
    for (const ExpertRange experts :
         {ExpertRange{0, config.num_experts}, ExpertRange{2, 1}, ExpertRange{5, 0}}) {
      ParameterStore store(parameter_specs(config, experts));
      std::map<Placement, Index> end;
      for (const Parameter& parameter : store.parameters()) {
        Index& next = end[parameter.spec.placement];
        EXPECT_EQ(parameter.offset, next);
        EXPECT_EQ(parameter.value.data, store.values(parameter.spec.placement).data() + next);
        EXPECT_EQ(parameter.grad.data, store.gradients(parameter.spec.placement).data() + next);
        next += parameter.value.size();
      }
      for (const Placement placement : kPlacements) {
        EXPECT_EQ(store.size(placement), end[placement]);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(store.values(placement).data()) % 64, 0u);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(store.gradients(placement).data()) % 64, 0u);
      }
    }
}

TEST(ParameterStore, FindsByNameAndSaysWhatItHasNot) {
  const ParameterStore store(parameter_specs(testing::small_config(), {0, 5}));
  EXPECT_EQ(store.find("model.norm.weight").spec.cols, 8);
  EXPECT_THROW(store.find("model.norm.bias"), ShapeError);
}

TEST(ParameterStore, RestartsGradientsAndLeavesValues) {
  const ModelConfig config = testing::small_config();
  ParameterStore store(parameter_specs(config, {0, 5}));
  const std::uint64_t version = store.version();
  initialise(store, config, 1);
  EXPECT_GT(store.version(), version);
  std::ranges::fill(store.gradients(Placement::kWorld), 3.0f);
  store.restart_gradients();
  for (const float gradient : store.gradients(Placement::kWorld)) ASSERT_EQ(gradient, 0.0f);
  EXPECT_EQ(store.expert_gradients(), Write::kReplace);
  store.mark_gradients_written();
  EXPECT_EQ(store.expert_gradients(), Write::kAdd);
  EXPECT_EQ(store.find("model.norm.weight").value(0, 7), 1.0f);
}

TEST(Initialise, GivesTheSameWeightsHoweverExpertsAreDealt) {
  const ModelConfig config = testing::small_config();
  const Values whole = initial_values(config, 1, 7);
  for (const Index ep : {2, 3, 4, 8}) EXPECT_EQ(initial_values(config, ep, 7), whole) << "ep " << ep;
  EXPECT_NE(initial_values(config, 1, 8), whole);
}

TEST(Initialise, GivesTheSameWeightsForAnyThreadCount) {
  const ModelConfig config = testing::small_config();
  const int before = threads();
  set_threads(1);
  const Values alone = initial_values(config, 1, 7);
  set_threads(3);
  EXPECT_EQ(initial_values(config, 1, 7), alone);
  set_threads(before);
}

TEST(Initialise, DrawsTheConfiguredDeviationAndOnesForNorms) {
  ModelConfig config = testing::small_config();
  config.initializer_range = 0.5;
  const Values values = initial_values(config, 1, 11);
  for (const float value : values.at("model.layers.0.self_attn.q_norm.weight")) EXPECT_EQ(value, 1.0f);
  const std::vector<float>& embedding = values.at("model.embed_tokens.weight");
  double sum = 0;
  double squares = 0;
  for (const float value : embedding) sum += value, squares += static_cast<double>(value) * value;
  const double n = static_cast<double>(embedding.size());
  // Five standard errors of a mean and of a deviation of n normal numbers.
  EXPECT_NEAR(sum / n, 0.0, 5 * 0.5 / std::sqrt(n));
  EXPECT_NEAR(std::sqrt(squares / n), 0.5, 5 * 0.5 / std::sqrt(2 * n));
  EXPECT_NE(values.at("model.layers.0.mlp.experts.0.up_proj.weight"),
            values.at("model.layers.0.mlp.experts.1.up_proj.weight"));
}

}  // namespace
}  // namespace moeloom
