// The towers of a model that are not trained: kept from import to export as they are.
#include "model/hf/convert/convert.hpp"
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "support/expect_error.hpp"
#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include "support/shared_folder.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::experts_here;
using testing::TemporaryFolder;

std::string refusal_of(const std::filesystem::path& folder, const ModelConfig& config) {
  return testing::message_of<ConfigError>([&] { check_weights(SafetensorsFolder(folder), config); });
}

/// A folder whose config says qwen3_vl_moe, with a tower of two tensors beside the text model.
void write_with_tower(const std::filesystem::path& folder) {
  const char* text = R"({"model_type": "qwen3_vl_moe", "vision_config": {"depth": 1}, "dtype": "bfloat16",
    "text_config": {"model_type": "qwen3_vl_moe_text", "vocab_size": 3, "hidden_size": 8,
    "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
    "intermediate_size": 12, "moe_intermediate_size": 6, "num_experts": 4, "num_experts_per_tok": 2}})";
  const Document document = Document::parse(text, "test");
  document.write(folder / "config.json");
  std::vector<TensorSpec> specs = tensor_specs(ModelConfig::from(document));
  specs.push_back({"model.visual.blocks.0.attn.qkv.weight", DType::kBF16, {3, 5}});
  specs.push_back({"model.visual.patch_embed.steps", DType::kI64, {2}});
  specs.push_back({"model.visual.merger.mlp.weight", dtype_from_name("F8_E4M3").value(), {3}});
  const ShardPlan plan = plan_shards(specs);
  create_shards(folder, plan);
  ShardWriter writer(folder, plan);
  unsigned char next = 0;
  for (const TensorSpec& spec : specs) {
    Index bytes = bytes_of(spec.dtype);
    for (const Index size : spec.shape) bytes *= size;
    std::vector<std::byte> content(at(bytes));
    for (std::byte& b : content) b = std::byte(next++ % 61);  // as floats and bf16: finite
    writer.write_bytes(spec.name, 0, content);
  }
  writer.close();
}

TEST(CarriedTowers, AreSavedUnchangedAlsoWhenTheirFolderIsGone) {
  const Communicator world = Communicator::world();
  const testing::SharedFolder folder(world);
  const auto source = folder.path() / "source", kept = folder.path() / "kept";
  const auto target = folder.path() / "target";
  if (world.rank() == 0) {
    for (const auto& path : {source, kept, target}) std::filesystem::create_directory(path);
    write_with_tower(source);
    std::filesystem::copy(source, kept, std::filesystem::copy_options::recursive);
  }
  world.barrier();
  const ModelConfig config = ModelConfig::read(source);
  EXPECT_EQ(config.names.carried.names.size(), 3u);
  const Mesh mesh(Communicator::world(), {1, world.size(), {"dp", "ep"}});
  ParameterStore store(parameter_specs(config, experts_here(config, mesh)));
  const WeightCoverage coverage = load_weights(store, SafetensorsFolder(source), config);
  EXPECT_EQ(coverage.carried, 3);
  EXPECT_TRUE(coverage.unused.empty());
  world.barrier();
  if (world.rank() == 0) std::filesystem::remove_all(source);
  world.barrier();
  save_weights(store, config, mesh, target, {.shard_bytes = 400, .dtype = DType::kBF16});
  const SafetensorsFolder before(kept), after(target);
  EXPECT_EQ(before.names(), after.names());
  for (const std::string& name : config.names.carried.names) {
    EXPECT_EQ(before.info(name).dtype, after.info(name).dtype) << name;
    EXPECT_TRUE(std::ranges::equal(before.file_of(name).raw(name), after.file_of(name).raw(name))) << name;
  }
  EXPECT_EQ(after.info("lm_head.weight").dtype, DType::kBF16);
}

/// What released folders of a family have of further tokens' predictors; N: num_hidden_layers.
const std::map<std::string, std::string> kPredictors = {
    {"qwen3_5_moe_text", "mtp.layers.0.self_attn.q_proj.weight"},
    {"qwen3_next", "mtp.fc.weight"},
    {"glm4_moe", "model.layers.N.eh_proj.weight"},
    {"deepseek_v3", "model.layers.N.mlp.experts.0.up_proj.weight"},
    {"exaone_moe", "mtp.layers.0.mlp.gate_proj.weight"},
    {"hy_v3", "model.layers.N.mlp.router.gate.weight"},
    {"mimo_v2_flash", "model.mtp.layers.0.eh_proj.weight"},
    {"axk1", "model.layers.N.shared_head.norm.weight"},
    {"minimax_m2", "model.mtp.0.eh_proj.weight"},
    {"glm4_moe_lite", "model.layers.N.enorm.weight"}};

std::string predictor_of(const ModelConfig& config) {
  std::string name = kPredictors.at(config.model_type);
  const std::size_t layer = name.find(".N.");
  return layer == std::string::npos ? name
                                    : name.replace(layer + 1, 1, std::to_string(config.num_hidden_layers));
}

/// The folder's model with a predictor beside it.
void write_with_predictor(const std::filesystem::path& golden, const std::string& predictor,
                          const std::filesystem::path& folder) {
  std::filesystem::copy_file(golden / "config.json", folder / "config.json");
  const SafetensorsFolder source(golden);
  std::vector<TensorSpec> specs;
  for (const std::string& name : source.names())
    specs.push_back({name, source.info(name).dtype, source.info(name).shape});
  specs.push_back({predictor, DType::kBF16, {2, 3}});
  const ShardPlan plan = plan_shards(specs);
  create_shards(folder, plan);
  ShardWriter writer(folder, plan);
  for (const std::string& name : source.names()) writer.write_bytes(name, 0, source.file_of(name).raw(name));
  writer.write_bytes(predictor, 0, std::vector<std::byte>(12, std::byte{0x3f}));
  writer.close();
}

bool is_same(const SafetensorsFolder& before, const SafetensorsFolder& after, const std::string& name) {
  return before.info(name).dtype == after.info(name).dtype &&
         std::ranges::equal(before.file_of(name).raw(name), after.file_of(name).raw(name));
}

/// Read and saved as train does, and converted: the same bytes, counted in one line.
TEST(CarriedTowers, PredictorsOfFurtherTokensAreKeptInEveryFamily) {
  std::set<std::string> seen;
  for (const auto& golden : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    const std::string type = ModelConfig::read(golden).model_type;
    if (!kPredictors.contains(type) || Communicator::world().size() > 1) continue;
    SCOPED_TRACE(golden.filename().string());
    seen.insert(type);
    const TemporaryFolder folder, trained, converted;
    const std::string predictor = predictor_of(ModelConfig::read(golden));
    write_with_predictor(golden, predictor, folder.path());
    const ModelConfig config = ModelConfig::read(folder.path());
    EXPECT_EQ(config.names.carried.names, std::vector<std::string>{predictor});
    EXPECT_EQ(std::ranges::count_if(
                  config.remarks,
                  [](const std::string& line) { return line.starts_with("1 tensors beside the model"); }),
              1);
    const Mesh mesh(Communicator::world(), {1, 1, {"dp", "ep"}});
    ParameterStore store(own_parameters(config));
    const SafetensorsFolder before(folder.path());
    EXPECT_EQ(load_weights(store, before, config).carried, 1);
    save_weights(store, config, mesh, trained.path(), {.experts = released_experts(config)});
    EXPECT_TRUE(is_same(before, SafetensorsFolder(trained.path()), predictor));
    write_recipes(before, copies_of(before, config), converted.path(), {});
    EXPECT_TRUE(is_same(before, SafetensorsFolder(converted.path()), predictor));
  }
  if (seen.empty()) GTEST_SKIP() << "one rank asks of these families, and of golden data that have one";
}

TEST(CarriedTowers, AreThoseThatTheFamilyHasAndNoOthers) {
  const TemporaryFolder folder;
  write_with_tower(folder.path());
  const ModelConfig config = ModelConfig::read(folder.path());
  ModelConfig text = config;
  text.model_type = "qwen3_vl_moe_text";
  const std::string message = refusal_of(folder.path(), text);
  EXPECT_NE(message.find("model.visual.patch_embed.steps: unexpected"), std::string::npos) << message;
  EXPECT_EQ(refusal_of(folder.path(), config), "nothing thrown");
}

/// 4.57 and released files have [E, D, 2F] and [E, F, D]; 5.15 saves [E, 2F, D] and [E, D, F] by the same
/// names.
TEST(CarriedTowers, StacksOfBothVersionsAreToldByTheirShapes) {
  const auto layout_of = [](Index d, Index f, bool turned) {
    const TemporaryFolder folder;
    const std::string text = R"({"model_type": "qwen3_vl_moe_text", "vocab_size": 3, "hidden_size": )" +
                             std::to_string(d) + R"(, "num_hidden_layers": 1, "num_attention_heads": 2,
      "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 12, "moe_intermediate_size": )" +
                             std::to_string(f) + R"(, "num_experts": 3, "num_experts_per_tok": 2})";
    const Document document = Document::parse(text, "test");
    document.write(folder / "config.json");
    ModelConfig config = ModelConfig::from(document);
    config.names.experts = turned ? ExpertLayout::kStacked : ExpertLayout::kStackedTransposed;
    const ShardPlan plan = plan_shards(tensor_specs(config));
    create_shards(folder.path(), plan);
    const ModelConfig read = ModelConfig::read(folder.path());
    EXPECT_EQ(check_weights(SafetensorsFolder(folder.path()), read).missing.size(), 0u);
    return read.names.experts;
  };
  for (const auto& [d, f] : {std::pair<Index, Index>{8, 6}, {8, 4}, {8, 8}}) {
    EXPECT_EQ(layout_of(d, f, true), ExpertLayout::kStacked) << d << " " << f;
    EXPECT_EQ(layout_of(d, f, false), ExpertLayout::kStackedTransposed) << d << " " << f;
  }
}

}  // namespace
}  // namespace moeloom
