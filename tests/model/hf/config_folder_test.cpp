#include "model/hf/weights/adapter.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "moeloom/base/errors.hpp"

#include <fstream>
#include <functional>

#include "support/expect_error.hpp"
#include "support/files.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::TemporaryFolder;
using Renaming = std::function<std::string(const std::string&)>;

const std::string kConfig =
    R"({"model_type": "llama", "vocab_size": 3, "hidden_size": 8, "num_hidden_layers": 1,
  "num_attention_heads": 2, "num_key_value_heads": 1, "intermediate_size": 12)";

std::string as_it_is(const std::string& name) {
  return name;
}

/// A llama's folder; an empty name leaves a tensor out. `head`: the byte that fills lm_head where it is not
/// empty.
void write_llama(const std::filesystem::path& folder, bool tied, std::optional<unsigned char> head,
                 const Renaming& renamed = as_it_is) {
  const Document document =
      Document::parse(kConfig + R"(, "tie_word_embeddings": )" + (tied ? "true}" : "false}"), "test");
  document.write(folder / "config.json");
  ModelConfig config = ModelConfig::from(document);
  config.tie_word_embeddings = !head.has_value();
  std::vector<TensorSpec> specs;
  for (TensorSpec spec : tensor_specs(config)) {
    spec.name = renamed(spec.name);
    if (!spec.name.empty()) specs.push_back(spec);
  }
  const ShardPlan plan = plan_shards(specs);
  create_shards(folder, plan);
  ShardWriter writer(folder, plan);
  for (const TensorSpec& spec : specs) {
    Index bytes = bytes_of(spec.dtype);
    for (const Index size : spec.shape) bytes *= size;
    const bool is_head = spec.name.ends_with("lm_head.weight");
    writer.write_bytes(spec.name, 0, std::vector<std::byte>(at(bytes), std::byte(is_head ? *head : 7)));
  }
  writer.close();
}

TEST(ConfigFolder, AStoredHeadThatIsNotTheEmbeddingIsTheModelsOwn) {
  const TemporaryFolder same, other;
  write_llama(same.path(), true, 7);
  write_llama(other.path(), true, 9);
  EXPECT_TRUE(ModelConfig::read(same.path()).tie_word_embeddings);
  EXPECT_TRUE(ModelConfig::read(same.path()).remarks.empty());
  const ModelConfig config = ModelConfig::read(other.path());
  EXPECT_FALSE(config.tie_word_embeddings);
  ASSERT_EQ(config.remarks.size(), 1u);
  EXPECT_NE(config.remarks.front().find("lm_head.weight is another matrix"), std::string::npos);
  EXPECT_FALSE(config.to_document().boolean("tie_word_embeddings"));
  EXPECT_EQ(check_weights(SafetensorsFolder(other.path()), config).unused.size(), 0u);
}

/// Both tables of a tied llama, in formats of their own: their values tell, as 5.15 has it.
TEST(ConfigFolder, AStoredHeadOfAnotherFormatIsComparedByItsNumbers) {
  std::vector<float> coarse(24), fine(24);
  for (std::size_t i = 0; i < coarse.size(); ++i) {
    coarse[i] = static_cast<float>(i) / 4;          // the same in bf16
    fine[i] = coarse[i] + 1.0f / (Index{1} << 14);  // not the same
  }
  const auto is_tied = [](const std::vector<float>& embedding, const std::vector<float>& head, DType format) {
    const TemporaryFolder folder;
    write_llama(folder.path(), true, std::nullopt);
    const SafetensorsFile before(folder.path() / kWeightsFile);
    std::vector<TensorSpec> specs = {{"lm_head.weight", format, {3, 8}}};
    std::vector<std::vector<float>> values = {head};
    for (const auto& [name, info] : before.tensors()) {
      specs.push_back({name, DType::kF32, info.shape});
      values.push_back(name == "model.embed_tokens.weight" ? embedding : before.floats(name));
    }
    std::filesystem::remove(folder.path() / kWeightsFile);
    write_safetensors(folder.path() / kWeightsFile, specs, {values.begin(), values.end()});
    const ModelConfig config = ModelConfig::read(folder.path());
    EXPECT_EQ(config.remarks.empty(), config.tie_word_embeddings);
    EXPECT_EQ(check_weights(SafetensorsFolder(folder.path()), config).unused.empty(),
              !config.tie_word_embeddings);
    return config.tie_word_embeddings;
  };
  EXPECT_TRUE(is_tied(coarse, coarse, DType::kBF16));
  EXPECT_FALSE(is_tied(coarse, std::vector<float>(24, 2), DType::kBF16));
  EXPECT_FALSE(is_tied(fine, fine, DType::kBF16)) << "a rounded copy is another matrix";
  EXPECT_FALSE(is_tied(fine, fine, DType::kF16));
}

TEST(ConfigFolder, OtherPrefixesAreReadAndSaid) {
  const auto behind = [](const std::string& prefix) {
    return [prefix](const std::string& name) { return prefix + name; };
  };
  const auto without_model = [](const std::string& name) {
    return name.starts_with("model.") ? name.substr(6) : name;
  };
  for (const Renaming& renamed : {Renaming(behind("language_model.")), Renaming(behind("base_model.model.")),
                                  Renaming(without_model)}) {
    const TemporaryFolder folder;
    write_llama(folder.path(), false, 9, renamed);
    const ModelConfig config = ModelConfig::read(folder.path());
    const SafetensorsFolder tensors(folder.path());
    EXPECT_EQ(check_weights(tensors, config).found, std::ssize(tensors.names()));
    ASSERT_EQ(config.remarks.size(), 1u) << renamed("x");
    EXPECT_NE(config.remarks.front().find("names of tensors begin with \"" + config.names.prefix.body + "\""),
              std::string::npos);
  }
}

TEST(ConfigFolder, WeightsBesideAnAdapterArePassedOverWithALine) {
  const TemporaryFolder base, adapter;
  write_llama(base.path(), false, 9);
  ModelConfig config = ModelConfig::read(base.path());
  config.adapter = resolve_adapter(config, {.rank = 1, .alpha = 1, .targets = {"attention"}});
  config.adapter->base = base.path();
  std::vector<float> numbers(64);
  const std::vector<TensorSpec> specs = adapter_tensor_specs(config);
  std::vector<std::span<const float>> values;
  for (const TensorSpec& spec : specs)
    values.emplace_back(numbers.data(), static_cast<std::size_t>(spec.shape[0] * spec.shape[1]));
  write_safetensors(adapter.path() / kAdapterFile, specs, values);
  adapter_document(config).write(adapter.path() / kAdapterConfigFile);
  EXPECT_TRUE(ModelConfig::read(adapter.path()).remarks.empty());
  write_llama(adapter.path(), false, 5);
  const std::vector<std::string> remarks = ModelConfig::read(adapter.path()).remarks;
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_NE(remarks[0].find("the weights in " + adapter.path().string() + " are passed over"),
            std::string::npos);
  config.adapter->base = adapter.path();
  adapter_document(config).write(adapter.path() / kAdapterConfigFile);
  EXPECT_THROW(ModelConfig::read(adapter.path()), ConfigError) << "it is its own base";
}

TEST(ConfigFolder, AMissingHeadIsNamedWithTheWaysRound) {
  const TemporaryFolder folder;
  write_llama(folder.path(), false, 9,
              [](const std::string& name) { return name == "lm_head.weight" ? "" : name; });
  const std::string text = testing::message_of<ConfigError>(
      [&] { check_weights(SafetensorsFolder(folder.path()), ModelConfig::read(folder.path())); });
  for (const char* part : {"tensor lm_head.weight: missing", "\"tie_word_embeddings\": true",
                           "tensors that may be missing = lm_head.weight"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
}

TEST(ConfigFolder, TensorsThatTheIndexAloneNamesAreMissedWhereTheyAreNeeded) {
  const auto with_index = [](const std::string& absent, const Renaming& renamed) {
    auto folder = std::make_unique<TemporaryFolder>();
    write_llama(folder->path(), false, 9, renamed);
    std::string map;
    for (const std::string& name : SafetensorsFolder(folder->path()).names())
      map += "\"" + name + "\": \"model-1.safetensors\", ";
    std::filesystem::rename(folder->path() / kWeightsFile, folder->path() / "model-1.safetensors");
    std::ofstream(folder->path() / kWeightsIndexFile)
        << "{\"weight_map\": {" << map << "\"" << absent << "\": \"model-1.safetensors\"}}";
    return folder;
  };
  const auto unneeded = with_index("mtp.fc.weight", as_it_is);
  const ModelConfig config = ModelConfig::read(unneeded->path());
  ASSERT_EQ(config.remarks.size(), 1u);
  EXPECT_NE(
      config.remarks.front().find("names 1 tensors that are in no shard, the first of them mtp.fc.weight"),
      std::string::npos);
  EXPECT_EQ(check_weights(SafetensorsFolder(unneeded->path()), config).missing.size(), 0u);
  const auto needed = with_index("model.norm.weight", [](const std::string& name) {
    return name == "model.norm.weight" ? std::string() : name;
  });
  const std::string text = testing::message_of<ConfigError>(
      [&] { check_weights(SafetensorsFolder(needed->path()), ModelConfig::read(needed->path())); });
  EXPECT_NE(text.find("tensor model.norm.weight: missing, expected [8]; the index names it"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace moeloom
