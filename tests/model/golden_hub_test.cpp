// Folders laid out as released ones are: the same model's logits, and its other towers carried.
#include "model/decoder.hpp"
#include "model/hf/weights/weights_io.hpp"
#include "moeloom/io/safetensors.hpp"

#include <array>
#include <map>
#include <set>

#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

namespace fs = std::filesystem;

/// Of every root that has them.
std::vector<fs::path> released_folders() {
  std::vector<fs::path> folders;
  for (const fs::path& root : testing::golden_roots(std::getenv("MOELOOM_GOLDEN")))
    if (fs::is_directory(root / "hub"))
      for (const fs::directory_entry& entry : fs::directory_iterator(root / "hub"))
        folders.push_back(entry.path());
  EXPECT_FALSE(folders.empty());
  return folders;
}

/// By the loader that a run uses.
Matrix logits_of(const fs::path& folder, const Batch& batch) {
  const Mesh mesh(Communicator::world(), {.dp = Communicator::world().size()});
  const ModelConfig config = ModelConfig::read(folder);
  ParameterStore store(parameter_specs(config, mesh.experts(config.num_experts)));
  load_weights(store, SafetensorsFolder(folder), config);
  Decoder decoder(config, store, mesh, testing::kernel_table(true));
  return decoder.logits(batch);
}

TEST(GoldenHub, ReleasedFoldersAreTheModelsOfTheSameName) {
  for (const fs::path& folder : released_folders()) {
    SCOPED_TRACE(folder.string());
    const fs::path model = folder.parent_path().parent_path() / "models" / folder.filename();
    const Batch batch = testing::golden_batch(model, Communicator::world());
    const Matrix logits = logits_of(folder, batch), expected = logits_of(model, batch);
    EXPECT_TRUE(std::ranges::equal(logits.view().flat(), expected.view().flat()));
  }
}

/// The keys that the released configs of a family have, made of those that 5.15's class wrote.
using Respelling = void (*)(const ModelConfig& config, Document& document);

void respell_mimo(const ModelConfig& config, Document& document) {
  std::vector<Index> windowed, sparse;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) {
    windowed.push_back(config.window(layer) > 0 ? 1 : 0);
    sparse.push_back(config.is_sparse(layer) ? 1 : 0);
  }
  document.set("hybrid_layer_pattern", windowed);
  document.set("moe_layer_freq", sparse);
  document.set("layernorm_epsilon", config.rms_norm_eps);
  document.set("partial_rotary_factor", config.partial_rotary_factor);
  document.set("rope_theta", config.rope_theta);
  document.set("swa_rope_theta", config.window_rope->theta);
  document.set("swa_num_key_value_heads", 2 * config.num_key_value_heads);
  document.set("add_swa_attention_sink_bias", true);
  for (const char* key : {"layer_types", "mlp_layer_types", "rms_norm_eps", "rope_parameters"})
    document.erase(key);
}

void respell_minimax(const ModelConfig& config, Document& document) {
  document.set("rotary_dim", config.rotary_dim());
  document.set("rope_theta", config.rope_theta);
  document.erase("rope_parameters");
}

void respell_gemma4(const ModelConfig& config, Document& document) {
  const Index full = config.num_hidden_layers - 1;
  document.set("global_head_dim", config.head_size(full));
  document.set("num_global_key_value_heads", config.kv_heads(full));
  document.erase("per_layer_config");
}

void respell_qwen3_5(const ModelConfig&, Document& document) {
  Document outer;
  outer.set("model_type", "qwen3_5_moe");
  outer.set("tie_word_embeddings", document.boolean_or("tie_word_embeddings", false));
  outer.set("text_config", document);
  document = outer;
}

const std::map<std::string, Respelling> kRespellings = {{"mimo_v2_flash", respell_mimo},
                                                        {"minimax_m2", respell_minimax},
                                                        {"gemma4_text", respell_gemma4},
                                                        {"qwen3_5_moe_text", respell_qwen3_5}};

/// What layers are made of.
void expect_same_layers(const ModelConfig& found, const ModelConfig& expected) {
  EXPECT_EQ(found.ropes(), expected.ropes());
  EXPECT_EQ(found.rms_norm_eps, expected.rms_norm_eps);
  EXPECT_EQ(found.attention_layers, expected.attention_layers);
  EXPECT_EQ(found.keys_are_values, expected.keys_are_values);
  EXPECT_EQ(found.value_scale, expected.value_scale);
  EXPECT_EQ(found.tie_word_embeddings, expected.tie_word_embeddings);
  EXPECT_EQ(found.total_parameters(), expected.total_parameters());
  for (Index layer = 0; layer < expected.num_hidden_layers; ++layer) {
    SCOPED_TRACE(layer);
    EXPECT_EQ(found.window(layer), expected.window(layer));
    EXPECT_EQ(found.is_sparse(layer), expected.is_sparse(layer));
    EXPECT_EQ(found.heads(layer), expected.heads(layer));
    EXPECT_EQ(found.kv_heads(layer), expected.kv_heads(layer));
    EXPECT_EQ(found.head_size(layer), expected.head_size(layer));
  }
}

/// Keys that a class of 5.15 passes over, or does not find where 5.5 wrote them.
constexpr std::array kPassedOver = {"hybrid_layer_pattern", "moe_layer_freq", "layernorm_epsilon",
                                    "swa_rope_theta",       "rotary_dim",     "swa_num_key_value_heads"};

TEST(GoldenHub, ReleasedKeysSayTheSameLayersAndAreWrittenInWordsOf515) {
  std::set<std::string> seen;
  for (const fs::path& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    const ModelConfig golden = ModelConfig::read(folder);
    const auto respelling = kRespellings.find(golden.model_type);
    if (respelling == kRespellings.end()) continue;
    SCOPED_TRACE(folder.string());
    seen.insert(golden.model_type);
    Document document = Document::read(folder / "config.json");
    respelling->second(golden, document);
    const ModelConfig released = ModelConfig::from(document);
    expect_same_layers(released, golden);
    Document written = released.to_document();
    for (const char* key : kPassedOver) written.erase(key);
    expect_same_layers(ModelConfig::from(written), golden);
    EXPECT_FALSE(golden.to_document().has("per_layer_config")) << "5.5 does not know it";
    expect_same_layers(ModelConfig::from(golden.to_document()), golden);
  }
  EXPECT_FALSE(seen.empty());  // the tree's own golden data have one; other sets have others
}

/// Of 5.15's class of MiniMax-M2: inner and outer share are equal.
TEST(GoldenHub, AnExportOfRotaryDimSaysTheShareThatTurns) {
  for (const fs::path& folder : released_folders()) {
    const ModelConfig config = ModelConfig::read(folder);
    if (!config.source.has("rotary_dim")) continue;
    const Document written = config.to_document();
    EXPECT_EQ(written.number("partial_rotary_factor"), config.partial_rotary_factor);
    EXPECT_EQ(written.object("rope_parameters").number("partial_rotary_factor"),
              config.partial_rotary_factor);
    EXPECT_EQ(written.object("rope_parameters").number("rope_theta"), config.rope_theta);
  }
}

TEST(GoldenHub, WhatIsNotTextIsCarried) {
  for (const fs::path& folder : released_folders()) {
    SCOPED_TRACE(folder.string());
    const SafetensorsFolder tensors(folder);
    const ModelConfig config = ModelConfig::read(folder);
    const WeightCoverage coverage = check_weights(tensors, config);
    EXPECT_TRUE(coverage.missing.empty() && coverage.unused.empty());
    EXPECT_EQ(static_cast<std::size_t>(coverage.expected + coverage.carried), tensors.names().size());
    const auto of_other_towers = std::ranges::count_if(tensors.names(), [](const std::string& name) {
      return name.starts_with("mtp.") || name.find("vis") != std::string::npos ||
             name.find("audio") != std::string::npos;
    });
    EXPECT_EQ(coverage.carried, of_other_towers);
  }
}

}  // namespace
}  // namespace moeloom
