// A folder of every family, read and written back: the same tensors under the same names, bit for bit.
#include "model/hf/convert/convert.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "hf/family_models.hpp"
#include "support/expect_error.hpp"
#include "support/on_one_rank.hpp"
#include "support/shared_folder.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::family_model;
using testing::TemporaryFolder;

class FamilyRoundTrip : public testing::OnOneRank {};

Index elements_in(const TensorSpec& spec) {
  Index count = 1;
  for (const Index size : spec.shape) count *= size;
  return count;
}

/// Numbers that are all different, and tensors of other names behind them.
void write_folder(const ModelConfig& config, const std::filesystem::path& folder,
                  const std::vector<TensorSpec>& more = {}) {
  config.to_document().write(folder / "config.json");
  std::vector<TensorSpec> specs = tensor_specs(config);
  specs.insert(specs.end(), more.begin(), more.end());
  const ShardPlan plan = plan_shards(specs);
  create_shards(folder, plan);
  ShardWriter writer(folder, plan);
  float next = 0;
  for (const TensorSpec& spec : specs) {
    std::vector<float> values(at(elements_in(spec)));
    for (float& value : values) value = next += 0.25f;
    writer.write(spec.name, 0, values);
  }
  writer.close();
}

/// What a run does between reading and writing a folder, without the steps.
ModelConfig pass_through(const std::filesystem::path& source, const std::filesystem::path& target,
                         DType dtype = DType::kF32) {
  const ModelConfig config = ModelConfig::read(source);
  const Mesh mesh(Communicator::self(), {1, 1, {"dp", "ep"}});
  ParameterStore store(parameter_specs(config, {0, config.num_experts}));
  load_weights(store, SafetensorsFolder(source), config);
  save_weights(store, config, mesh, target, {.dtype = dtype});
  return config;
}

void expect_same_tensors(const std::filesystem::path& source, const std::filesystem::path& target) {
  const SafetensorsFolder before(source), after(target);
  EXPECT_EQ(before.names(), after.names());
  for (const std::string& name : before.names()) {
    EXPECT_EQ(before.info(name).shape, after.info(name).shape) << name;
    const auto expected = before.file_of(name).raw(name), got = after.file_of(name).raw(name);
    EXPECT_TRUE(std::ranges::equal(expected, got)) << name;
  }
}

void expect_round_trip(const ModelConfig& config, const std::vector<TensorSpec>& more = {}) {
  const TemporaryFolder folder;
  const auto source = folder.path() / "source", target = folder.path() / "target";
  std::filesystem::create_directory(source);
  std::filesystem::create_directory(target);
  write_folder(config, source, more);
  const ModelConfig read = pass_through(source, target);
  EXPECT_EQ(read.names.experts, config.names.experts);
  EXPECT_EQ(read.to_document().dump(), config.to_document().dump());
  expect_same_tensors(source, target);
}

TEST_F(FamilyRoundTrip, KeepsEveryTensorOfEveryFamily) {
  for (const Family& family : families()) {
    if (!family.refusal.empty()) continue;
    SCOPED_TRACE(family.model_type);
    expect_round_trip(family_model(family));
  }
}

/// Transformers 5 stacks what transformers 4 lists.
TEST_F(FamilyRoundTrip, KeepsListsAndStacksOfExpertsWhereAFamilyMayHaveEither) {
  int families_with_both = 0;
  for (const Family& family : families()) {
    const StackNames usual;
    if (!family.refusal.empty() || !family.moe || family.moe->transposed || family.moe->only_stacked ||
        family.moe->stack.gate_up != usual.gate_up)
      continue;
    SCOPED_TRACE(family.model_type);
    for (const ExpertLayout layout : {ExpertLayout::kList, ExpertLayout::kStacked}) {
      ModelConfig config = family_model(family);
      config.names.experts = layout;
      expect_round_trip(config);
    }
    ++families_with_both;
  }
  EXPECT_GE(families_with_both, 27);
}

/// With the router and its bias, where their block has another name in stacks; the stacked folder loads.
TEST_F(FamilyRoundTrip, ConvertsBetweenListsAndStacksOfExperts) {
  for (const Family& family : families()) {
    if (!family.refusal.empty() || !family.moe || family.moe->transposed || family.moe->only_stacked ||
        family.text_config || family.moe->stack.gate_up != StackNames().gate_up ||
        !family.mlp_bias_key.empty())
      continue;
    SCOPED_TRACE(family.model_type);
    const TemporaryFolder folder;
    const auto list = folder.path() / "list", stacks = folder.path() / "stacks",
               back = folder.path() / "back", again = folder.path() / "again";
    for (const auto& path : {list, stacks, back, again}) std::filesystem::create_directory(path);
    ModelConfig config = family_model(family);
    config.names.experts = ExpertLayout::kList;
    write_folder(config, list);
    const auto convert = [&](const std::filesystem::path& from, const std::filesystem::path& to,
                             ExpertFiles layout) {
      const SafetensorsFolder tensors(from);
      write_recipes(tensors, in_layout(copies_of(tensors), layout, family.model_type), to, {});
      std::filesystem::copy_file(list / "config.json", to / "config.json");
    };
    convert(list, stacks, ExpertFiles::kStacked);
    EXPECT_EQ(pass_through(stacks, again).names.experts, ExpertLayout::kStacked);
    expect_same_tensors(stacks, again);
    convert(stacks, back, ExpertFiles::kList);
    expect_same_tensors(list, back);
  }
}

/// [gate 0, up 0, gate 1, up 1, ...] of gpt_oss and [n blocks of q, k, v, z] of a delta net are not the order
/// of the parameter.
TEST_F(FamilyRoundTrip, OfParametersInAnotherOrderIsNoCopyOfAFile) {
  const ModelConfig config = testing::model("qwen3_next");
  const TemporaryFolder folder;
  write_folder(config, folder.path());
  ParameterStore store(parameter_specs(config, {0, config.num_experts}));
  const SafetensorsFolder source(folder.path());
  load_weights(store, source, config);
  const std::string in_file = "model.layers.0.linear_attn.in_proj_qkvz.weight";
  const Index cols = config.hidden_size, heads = config.linear_num_key_heads;
  const Index key_dim = config.linear_key_head_dim, keys = heads * key_dim;
  const Index block = source.info(in_file).shape[0] / heads;
  std::vector<float> row(at(cols));
  const MatrixView value = store.find("model.layers.0.linear_attn.in_proj.weight").value;
  for (const Index head : {Index{0}, Index{1}, heads - 1}) {
    source.read(in_file, (head * block + key_dim) * cols, row);  // the first row of k of this head
    EXPECT_TRUE(std::ranges::equal(row, value.rows_from(keys + head * key_dim, 1).flat())) << head;
  }
}

/// HF's qwen3_5_moe keeps them in four tensors, q, k and v in the first.
TEST_F(FamilyRoundTrip, PartsOfADeltaNetAreTheColumnsThatItReads) {
  const ModelConfig config = testing::model("qwen3_5_moe_text");
  const ParameterStore store(parameter_specs(config, {0, config.num_experts}));
  const auto spec = std::get<DeltaNetSpec>(config.layer(0).mixer);
  const Parameter& in_proj = store.find(spec.prefix + "in_proj.weight");
  Matrix row(1, spec.projected_width());
  const auto expect_part = [&](std::size_t slice, const std::string& name, ConstMatrixView columns) {
    const HfSlice& part = in_proj.spec.slices.at(slice);
    EXPECT_EQ(part.name, spec.prefix + name);
    EXPECT_EQ(part.row_begin, columns.data - row.row(0)) << name;
    EXPECT_EQ(part.rows, columns.cols) << name;
    EXPECT_EQ(part.source_begin, 0) << name;
  };
  const ConstMatrixView projected = row;
  expect_part(0, "in_proj_qkv.weight", spec.mixed_of(projected));
  expect_part(1, "in_proj_z.weight", spec.z_of(projected));
  expect_part(2, "in_proj_b.weight", spec.b_of(projected));
  expect_part(3, "in_proj_a.weight", spec.a_of(projected));
  EXPECT_EQ(in_proj.spec.slices.size(), 4u);
}

TEST_F(FamilyRoundTrip, CarriesLayersThatPredictFurtherTokens) {
  const struct {
    std::string type, more;
    std::vector<std::string> tensors;
  } cases[] = {
      {"deepseek_v3", R"("num_nextn_predict_layers": 1)", {"model.layers.4.eh_proj.weight"}},
      {"deepseek_v3", "", {"model.layers.4.eh_proj.weight"}},
      {"kimi_k2", R"("num_nextn_predict_layers": 0)", {"model.layers.4.eh_proj.weight"}},
      {"glm4_moe", R"("num_nextn_predict_layers": 1)", {"model.layers.4.a.weight", "model.layers.15.b"}},
      {"qwen3_next", "", {"mtp.fc.weight", "mtp.layers.0.mlp.gate.weight"}},
      {"qwen3_5_moe_text", "", {"mtp.norm.weight"}},
      {"ernie4_5_moe", R"("num_nextn_predict_layers": 1)", {"model.mtp_linear_proj.0.weight"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.type);
    std::vector<TensorSpec> more;
    for (const std::string& name : c.tensors) more.push_back({name, DType::kF32, {3, 2}});
    expect_round_trip(testing::model(c.type, c.more), more);
  }
}

TEST_F(FamilyRoundTrip, RefusesALayerBehindTheLastOfAFamilyThatHasNone) {
  const TemporaryFolder folder;
  write_folder(testing::model("qwen3_moe"), folder.path(),
               {{"model.layers.4.eh_proj.weight", DType::kF32, {2}}});
  const ModelConfig config = ModelConfig::read(folder.path());
  const std::string text =
      testing::message_of<ConfigError>([&] { check_weights(SafetensorsFolder(folder.path()), config); });
  EXPECT_NE(text.find("model.layers.4.eh_proj.weight: unexpected"), std::string::npos) << text;
}

TEST_F(FamilyRoundTrip, RefusesWhatOnlyLooksLikeALayerBehindTheLast) {
  for (const std::string name : {"model.layers.3.eh_proj.weight", "model.layers.4", "model.layers.x4.a",
                                 "model.layers.99999999999999999999.a", "layers.4.a"}) {
    const TemporaryFolder folder;
    write_folder(testing::model("deepseek_v3"), folder.path(), {{name, DType::kF32, {2}}});
    const ModelConfig config = ModelConfig::read(folder.path());
    const std::string text =
        testing::message_of<ConfigError>([&] { check_weights(SafetensorsFolder(folder.path()), config); });
    EXPECT_NE(text.find(name + ": unexpected"), std::string::npos) << text;
  }
}

/// Rounded, a router or its bias would choose other experts; HF keeps them in fp32.
TEST_F(FamilyRoundTrip, LeavesWhatStaysFp32InABf16File) {
  const struct {
    std::string type, tensor;
  } cases[] = {
      {"ernie4_5_moe", "model.layers.1.mlp.gate.weight"},
      {"ernie4_5_moe", "model.layers.1.mlp.moe_statics.e_score_correction_bias"},
      {"hunyuan_v1_moe", "model.layers.0.mlp.gate.wg.weight"},
      {"lfm2_moe", "model.layers.2.feed_forward.expert_bias"},
      {"minimax_m2", "model.layers.0.block_sparse_moe.e_score_correction_bias"},
      {"qwen3_5_moe_text", "model.layers.0.linear_attn.A_log"},
      {"qwen3_5_moe_text", "model.layers.0.linear_attn.norm.weight"},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.type);
    const TemporaryFolder folder;
    const auto source = folder.path() / "source", target = folder.path() / "target";
    std::filesystem::create_directory(source);
    std::filesystem::create_directory(target);
    write_folder(testing::model(c.type), source);
    pass_through(source, target, DType::kBF16);
    const SafetensorsFolder written(target);
    EXPECT_EQ(written.info(c.tensor).dtype, DType::kF32);
    EXPECT_EQ(written.info("model.embed_tokens.weight").dtype, DType::kBF16);
  }
}

}  // namespace
}  // namespace moeloom
