// A block of experts in each family's names and layouts: rows made by hand, so that no family's row is
// needed.
#include "model/hf/stored/slice_io.hpp"

#include <cstring>
#include <map>
#include <numeric>

#include "hf/parameters/parameter_parts.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom::moe_parameter_specs_test {
namespace {

constexpr Index kExperts = 5, kHidden = 6, kWidth = 4;

using Shapes = std::map<std::string, std::vector<Index>>;

struct Case {
  std::string name;
  MoeRule rule;
  MoeSpec spec;
  Shapes tensors;  // behind "model.layers.0."
};

MoeSpec moe_spec() {
  return {.prefix = "model.layers.0.mlp.",
          .hidden_size = kHidden,
          .width = kWidth,
          .activation = {},
          .router = {.num_experts = kExperts, .top_k = 2}};
}

/// GPT-OSS: [E, D, 2F] with gate and up in turn, biases everywhere.
Case interleaved() {
  Case c{"interleaved", {}, moe_spec(), {}};
  c.rule.router_names = {.weight = "router.weight", .bias = "router.bias"};
  c.rule.transposed = c.rule.interleaved = true;
  c.rule.layout = ExpertLayout::kStackedInterleaved;
  c.spec.router_bias = c.spec.expert_bias = true;
  c.tensors = {{"mlp.router.weight", {5, 6}},           {"mlp.router.bias", {5}},
               {"mlp.experts.gate_up_proj", {5, 6, 8}}, {"mlp.experts.gate_up_proj_bias", {5, 8}},
               {"mlp.experts.down_proj", {5, 4, 6}},    {"mlp.experts.down_proj_bias", {5, 6}}};
  return c;
}

/// Granite: stacks [E, out, in] under names of their own.
Case fused() {
  Case c{"fused", {}, moe_spec(), {}};
  c.rule.block = "block_sparse_moe";
  c.rule.router_names = {.weight = "router.layer.weight"};
  c.rule.stack = {.gate_up = "input_linear.weight", .down = "output_linear.weight"};
  c.rule.layout = ExpertLayout::kStacked;
  c.tensors = {{"block_sparse_moe.router.layer.weight", {5, 6}},
               {"block_sparse_moe.input_linear.weight", {5, 8, 6}},
               {"block_sparse_moe.output_linear.weight", {5, 6, 4}}};
  return c;
}

/// Llama 4: stacks [E, in, out] and a shared expert.
Case transposed() {
  Case c{"transposed", {}, moe_spec(), {}};
  c.rule.block = "feed_forward";
  c.rule.router_names = {.weight = "router.weight"};
  c.rule.transposed = true;
  c.rule.layout = ExpertLayout::kStackedTransposed;
  c.rule.shared = SharedExpertRule{.width_key = "", .name = "shared_expert"};
  c.spec.shared = SharedExpertSpec{.width = 3};
  c.tensors = {{"feed_forward.router.weight", {5, 6}},
               {"feed_forward.experts.gate_up_proj", {5, 6, 8}},
               {"feed_forward.experts.down_proj", {5, 4, 6}},
               {"feed_forward.shared_expert.gate_proj.weight", {3, 6}},
               {"feed_forward.shared_expert.up_proj.weight", {3, 6}},
               {"feed_forward.shared_expert.down_proj.weight", {6, 3}}};
  return c;
}

/// ERNIE 4.5: a list with biases, and a row of biases for the choice.
Case listed() {
  Case c{"listed", {}, moe_spec(), {}};
  c.rule.router_names = {.correction_bias = "moe_statics.e_score_correction_bias",
                         .correction_bias_is_row = true};
  c.rule.shared = SharedExpertRule{.width_key = "", .name = "shared_experts"};
  c.spec.correction_bias = c.spec.expert_bias = true;
  c.spec.shared = SharedExpertSpec{.width = 3, .bias = true};
  c.tensors = {{"mlp.gate.weight", {5, 6}}, {"mlp.moe_statics.e_score_correction_bias", {1, 5}}};
  const auto add_mlp = [&](const std::string& mlp, Index width) {
    for (const std::string part : {"gate_proj", "up_proj"}) {
      c.tensors[mlp + part + ".weight"] = {width, kHidden};
      c.tensors[mlp + part + ".bias"] = {width};
    }
    c.tensors[mlp + "down_proj.weight"] = {kHidden, width};
    c.tensors[mlp + "down_proj.bias"] = {kHidden};
  };
  for (Index e = 0; e < kExperts; ++e) add_mlp("mlp.experts." + std::to_string(e) + ".", kWidth);
  add_mlp("mlp.shared_experts.", 3);
  return c;
}

/// The same stacked, [E, 2F] and [E, D] beside the weights.
Case stacked() {
  Case c{"stacked", {}, moe_spec(), {}};
  c.rule.layout = ExpertLayout::kStacked;
  c.spec.expert_bias = true;
  c.tensors = {{"mlp.gate.weight", {5, 6}},
               {"mlp.experts.gate_up_proj", {5, 8, 6}},
               {"mlp.experts.gate_up_proj_bias", {5, 8}},
               {"mlp.experts.down_proj", {5, 6, 4}},
               {"mlp.experts.down_proj_bias", {5, 6}}};
  return c;
}

/// LFM2: other names of the parts, and a bias for the choice right under the block.
Case numbered() {
  Case c{"numbered", {}, moe_spec(), {}};
  c.rule.block = "feed_forward";
  c.rule.router_names = {.correction_bias = "expert_bias"};
  c.rule.experts = {.gate = "w1", .up = "w3", .down = "w2"};
  c.spec.correction_bias = true;
  c.tensors = {{"feed_forward.gate.weight", {5, 6}}, {"feed_forward.expert_bias", {5}}};
  for (Index e = 0; e < kExperts; ++e) {
    const std::string expert = "feed_forward.experts." + std::to_string(e) + ".";
    c.tensors[expert + "w1.weight"] = c.tensors[expert + "w3.weight"] = {kWidth, kHidden};
    c.tensors[expert + "w2.weight"] = {kHidden, kWidth};
  }
  return c;
}

std::vector<Case> cases() {
  return {interleaved(), fused(), transposed(), listed(), stacked(), numbered()};
}

/// Names as a folder with the case's tensors has them.
Specs specs_of(const Case& c, ExpertRange experts) {
  Family family;
  family.moe = c.rule;
  std::vector<std::string> tensors;
  for (const auto& [name, shape] : c.tensors) tensors.push_back("model.layers.0." + name);
  const CheckpointNames names = checkpoint_names(family, tensors);
  EXPECT_EQ(names.experts, c.rule.layout) << c.name;
  Specs specs;
  add_moe(specs, {family, names}, c.spec, experts);
  return specs;
}

std::vector<TensorSpec> tensors_of(const Case& c) {
  std::vector<TensorSpec> tensors;
  for (const auto& [name, shape] : c.tensors)
    tensors.push_back({"model.layers.0." + name, DType::kF32, shape});
  return tensors;
}

/// Every element of the file another number.
void write_file(const Case& c, const std::filesystem::path& folder) {
  const ShardPlan plan = plan_shards(tensors_of(c), kShardBytes);
  create_shards(folder, plan);
  ShardWriter writer(folder, plan);
  float next = 1;
  for (const TensorSpec& tensor : tensors_of(c)) {
    Index count = 1;
    for (const Index size : tensor.shape) count *= size;
    std::vector<float> values(at(count));
    std::iota(values.begin(), values.end(), next);
    next += static_cast<float>(count);
    writer.write(tensor.name, 0, values);
  }
  writer.close();
}

void read(const SafetensorsFolder& folder, const ParameterStore& store) {
  for (const Parameter& parameter : store.parameters())
    for (const HfSlice& slice : parameter.spec.slices)
      read_slice(folder, {}, slice, parameter.value.rows_from(slice.row_begin, slice.rows));
}

TEST(MoeParameterSpecs, HaveTheNamesAndShapesOfTheFile) {
  for (const Case& c : cases()) {
    Shapes got;
    for (const ParameterSpec& spec : specs_of(c, {0, kExperts}))
      for (const HfSlice& slice : spec.slices) {
        EXPECT_EQ(slice_violation(slice, spec.cols), "") << c.name;
        got[slice.name.substr(std::string("model.layers.0.").size())] = slice.shape;
      }
    EXPECT_EQ(got, c.tensors) << c.name;
  }
}

TEST(MoeParameterSpecs, AreWrittenAsTheyWereReadBitForBit) {
  for (const Case& c : cases()) {
    const testing::TemporaryFolder first, second;
    write_file(c, first.path());
    const SafetensorsFolder source(first.path());
    ParameterStore store(specs_of(c, {0, kExperts}));
    read(source, store);
    const ShardPlan plan = plan_shards(tensors_of(c), kShardBytes);
    create_shards(second.path(), plan);
    ShardWriter writer(second.path(), plan);
    for (const Parameter& parameter : store.parameters())
      for (const HfSlice& slice : parameter.spec.slices)
        write_slice(writer, slice, parameter.value.rows_from(slice.row_begin, slice.rows));
    writer.close();
    const SafetensorsFolder written(second.path());
    for (const TensorSpec& tensor : tensors_of(c)) {
      const auto a = source.file_of(tensor.name).raw(tensor.name);
      const auto b = written.file_of(tensor.name).raw(tensor.name);
      EXPECT_TRUE(std::ranges::equal(a, b)) << c.name << " " << tensor.name;
    }
  }
}

TEST(MoeParameterSpecs, OfSomeExpertsAreTheirRowsOfTheWhole) {
  for (const Case& c : cases()) {
    const testing::TemporaryFolder folder;
    write_file(c, folder.path());
    const SafetensorsFolder source(folder.path());
    ParameterStore whole(specs_of(c, {0, kExperts})), part(specs_of(c, {2, 3}));
    read(source, whole);
    read(source, part);
    for (const Parameter& parameter : part.parameters()) {
      const Parameter& all = whole.find(parameter.spec.name);
      const bool of_experts = parameter.spec.placement == Placement::kExperts;
      const Index first = of_experts ? 2 * parameter.spec.rows / 3 : 0;
      EXPECT_TRUE(
          std::ranges::equal(parameter.value.flat(), all.value.rows_from(first, parameter.spec.rows).flat()))
          << c.name << " " << parameter.spec.name;
    }
  }
}

/// Gate rows stand first, whatever the file does.
TEST(MoeParameterSpecs, ReadGateAndUpApart) {
  const testing::TemporaryFolder folder;
  const Case c = interleaved();
  write_file(c, folder.path());
  const SafetensorsFolder source(folder.path());
  ParameterStore store(specs_of(c, {0, kExperts}));
  read(source, store);
  const auto number = [&](const std::string& name, Index i) {
    return source.file_of("model.layers.0." + name).floats("model.layers.0." + name)[at(i)];
  };
  const MatrixView gate_up = store.find("model.layers.0.mlp.experts.gate_up_proj").value;
  const MatrixView biases = store.find("model.layers.0.mlp.experts.gate_up_proj_bias").value;
  for (Index e = 0; e < kExperts; ++e)
    for (Index f = 0; f < kWidth; ++f) {
      const Index gate = e * 2 * kWidth + f, up = gate + kWidth;
      for (Index d = 0; d < kHidden; ++d) {
        const Index row = (e * kHidden + d) * 2 * kWidth;
        EXPECT_EQ(gate_up(gate, d), number("mlp.experts.gate_up_proj", row + 2 * f));
        EXPECT_EQ(gate_up(up, d), number("mlp.experts.gate_up_proj", row + 2 * f + 1));
      }
      EXPECT_EQ(biases(gate, 0), number("mlp.experts.gate_up_proj_bias", e * 2 * kWidth + 2 * f));
      EXPECT_EQ(biases(up, 0), number("mlp.experts.gate_up_proj_bias", e * 2 * kWidth + 2 * f + 1));
    }
}

TEST(MoeParameterSpecs, OfFrozenBiasesOfExpertsHaveNoGradient) {
  Specs specs = specs_of(interleaved(), {0, kExperts});
  for (ParameterSpec& spec : specs) spec.frozen = spec.name.ends_with("_bias");
  const ParameterStore store(std::move(specs));
  EXPECT_EQ(store.find("model.layers.0.mlp.experts.gate_up_proj_bias").grad.rows, 0);
  EXPECT_EQ(store.find("model.layers.0.mlp.experts.down_proj_bias").grad.rows, 0);
  EXPECT_GT(store.find("model.layers.0.mlp.experts.down_proj").grad.rows, 0);
}

}  // namespace
}  // namespace moeloom::moe_parameter_specs_test
