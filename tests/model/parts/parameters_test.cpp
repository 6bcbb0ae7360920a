#include "model/parts/parameters.hpp"

#include "model/hf/family.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/initialise.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/io/safetensors.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "support/golden.hpp"
#include "support/golden_model.hpp"
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
  for (const auto& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
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

/// What of a stacked tensor each element of an expert's rows is, marked in `seen`.
void mark(const ParameterSpec& spec, const HfSlice& slice, std::vector<int>& seen) {
  for (Index row = 0; row < slice.rows; ++row)
    for (Index col = 0; col < spec.cols; ++col) {
      const Index half = slice.rows / 2;
      const Index in_column = slice.layout == SliceLayout::kInterleaved ? 2 * (row % half) + row / half : row;
      const Index place =
          slice.layout == SliceLayout::kRows ? row * spec.cols + col : col * slice.shape.back() + in_column;
      ++seen.at(static_cast<std::size_t>(slice.source_begin + place));
    }
}

TEST(ParameterSpecs, CoverEachElementOfStackedExpertsOnce) {
  for (const ExpertLayout layout :
       {ExpertLayout::kStacked, ExpertLayout::kStackedTransposed, ExpertLayout::kStackedInterleaved})
    for (const Index width : {4, 6, 8}) {  // 2F = D, and F = D
      ModelConfig config = testing::small_config();
      config.moe_intermediate_size = width;
      config.names.experts = layout;
      const bool transposed = layout != ExpertLayout::kStacked;
      std::map<std::string, std::vector<int>> seen;
      for (const ExpertRange experts : {ExpertRange{0, 2}, ExpertRange{2, 3}})
        for (const ParameterSpec& spec : parameter_specs(config, experts)) {
          if (spec.placement != Placement::kExperts) continue;
          for (const HfSlice& slice : spec.slices) {
            const bool gate_up = slice.name.ends_with(".mlp.experts.gate_up_proj");
            const std::vector<Index> plain =
                gate_up ? std::vector<Index>{5, 2 * width, 8} : std::vector<Index>{5, 8, width};
            EXPECT_EQ(slice.shape, transposed ? (std::vector<Index>{5, plain[2], plain[1]}) : plain);
            seen[slice.name].resize(static_cast<std::size_t>(5 * plain[1] * plain[2]));
            mark(spec, slice, seen[slice.name]);
          }
        }
      ASSERT_EQ(seen.size(), 4u);  // two sparse layers, two tensors each
      for (const auto& [name, counts] : seen)
        EXPECT_EQ(std::ranges::count(counts, 1), std::ssize(counts)) << name;
    }
}

TEST(CheckpointNames, ComeFromTheNamesFoundAndTheFamilysRow) {
  const auto names = [](const std::string& type, const std::vector<std::string>& found) {
    return checkpoint_names(*find_family(type), found);
  };
  const std::string stacked = "model.layers.0.mlp.experts.gate_up_proj";
  EXPECT_EQ(names("qwen3_moe", {}).experts, ExpertLayout::kList);
  EXPECT_EQ(names("qwen3_moe", {stacked}).experts, ExpertLayout::kStacked);
  EXPECT_EQ(names("qwen3_vl_moe_text", {}).experts, ExpertLayout::kStackedTransposed);
  EXPECT_EQ(names("qwen3_vl_moe_text", {stacked}).experts, ExpertLayout::kStackedTransposed);
  EXPECT_EQ(names("mixtral", {}).block, "block_sparse_moe");
  EXPECT_EQ(names("mixtral", {stacked}).block, "mlp");
  EXPECT_EQ(names("qwen3_vl_moe", {}).prefix.body, "model.language_model.");
  EXPECT_EQ(names("qwen3_vl_moe_text", {"model.language_model.embed_tokens.weight"}).prefix.body,
            "model.language_model.");
  EXPECT_EQ(names("qwen3_omni_moe", {}).prefix.head, "thinker.lm_head.weight");
}

TEST(ParameterSpecs, GiveARankItsExpertsUnderTheirGlobalIds) {
  const ModelConfig config = testing::small_config();
  for (const ParameterSpec& spec : parameter_specs(config, {3, 2})) {
    if (spec.placement != Placement::kExperts) continue;
    EXPECT_EQ(spec.groups, 2);
    EXPECT_EQ(spec.group_ids.front(), 3);
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

TEST(ParameterStore, ExpertsThatANodeReadsLieInItsMemoryAsElsewhere) {
  const ModelConfig config = configs()[0];
  const auto memory = std::make_shared<NodeMemory>(Communicator::self(), 64);
  const auto specs = parameter_specs(config, {0, config.num_experts});
  ParameterStore shared(specs, {.experts = memory}), own(specs);
  initialise(shared, config, 3);
  initialise(own, config, 3);
  EXPECT_TRUE(std::ranges::equal(shared.values(Placement::kExperts), own.values(Placement::kExperts)));
  EXPECT_TRUE(std::ranges::all_of(shared.gradients(Placement::kExperts), [](float g) { return g == 0; }));
  for (const Parameter& parameter : shared.parameters()) {
    if (parameter.spec.placement == Placement::kWorld) {
      EXPECT_FALSE(memory->offset_of(parameter.value.data)) << parameter.spec.name;
      continue;
    }
    EXPECT_TRUE(memory->offset_of(parameter.value.data)) << parameter.spec.name;
    EXPECT_TRUE(memory->offset_of(parameter.grad.data)) << parameter.spec.name;
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
