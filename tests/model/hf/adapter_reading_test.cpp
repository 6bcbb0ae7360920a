// Adapters as others write them: ranks by module, other layouts and names, some experts only. What is added
// is compared with PEFT's formulas, B A of a module and the sum over ranks j of B[o, j E + e] A[e r + j, i]
// of a stack's expert e.
#include "model/hf/parameters/parameter_specs.hpp"
#include "model/hf/stored/slice_io.hpp"
#include "model/hf/weights/adapter.hpp"
#include "moeloom/base/errors.hpp"

#include <functional>
#include <map>
#include <memory>

#include "hf/family_models.hpp"
#include "support/expect_error.hpp"
#include "support/files.hpp"
#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include "support/random_matrix.hpp"
#include "support/small_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

class AdapterReading : public ::testing::Test {
 protected:
  void SetUp() override {
    document_.set("peft_type", "LORA");
    document_.set("r", Index{2});
    document_.set("lora_alpha", 3.0);
    document_.set("peft_version", "0.20.0");
  }

  /// Factors [rank, in] and [out, rank] of a path, or of `copies` experts.
  void add(const std::string& path, Index in, Index out, Index rank = 2, Index copies = 1) {
    tensors_[path + ".lora_A.weight"] = testing::random_matrix(rank * copies, in, ++seed_);
    tensors_[path + ".lora_B.weight"] = testing::random_matrix(out, rank * copies, ++seed_);
  }
  void add_stacks(const std::string& block, Index rank = 2) {
    add(block + ".base_layer", kHidden, 2 * kWidth, rank, kExperts);
    add(block, kWidth, kHidden, 2, kExperts);
    document_.set("target_parameters",
                  std::vector<std::string>{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"});
  }
  void rename(const std::string& from, const std::string& to) {
    std::map<std::string, Matrix> renamed;
    for (auto& [name, matrix] : tensors_) {
      std::string other = name;
      const std::size_t found = name.find(from);
      if (found != std::string::npos) other = name.substr(0, found) + to + name.substr(found + from.size());
      renamed[other] = std::move(matrix);
    }
    tensors_ = std::move(renamed);
  }
  void write() {
    std::vector<TensorSpec> specs;
    std::vector<std::span<const float>> values;
    for (const auto& [name, matrix] : tensors_) {
      specs.push_back({name, DType::kF32, {matrix.rows(), matrix.cols()}});
      values.push_back(matrix.view().flat());
    }
    write_safetensors(folder_ / kAdapterFile, specs, values);
    document_.write(folder_ / kAdapterConfigFile);
  }
  ModelConfig read(ModelConfig config) {
    write();
    config.adapter = read_adapter_settings(folder_.path(), config);
    return config;
  }
  /// What the adapter adds, in a store of zeros.
  std::unique_ptr<ParameterStore> added(const ModelConfig& model) {
    const ModelConfig config = read(model);
    auto store = std::make_unique<ParameterStore>(own_parameters(config));
    merge_adapter(*store, folder_.path(), config);
    return store;
  }
  std::string refusal(const ModelConfig& model = testing::tiny_config()) {
    return testing::message_of<ConfigError>([&] { checked_adapter(folder_.path(), read(model)); });
  }
  /// (B A)[row, col] of expert `e` of `copies`.
  double product(const std::string& path, Index row, Index col, Index e = 0, Index copies = 1) const {
    const Matrix& a = tensors_.at(path + ".lora_A.weight");
    const Matrix& b = tensors_.at(path + ".lora_B.weight");
    const Index rank = a.rows() / copies;
    double sum = 0;
    for (Index j = 0; j < rank; ++j)
      sum += static_cast<double>(b.view()(row, j * copies + e)) * a.view()(e * rank + j, col);
    return sum;
  }
  void expect_added(const ParameterStore& store, const std::string& parameter, Index first, Index rows,
                    double scale, const std::function<double(Index, Index)>& expected) const {
    const MatrixView value = store.find("model.layers.0." + parameter).value;
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < value.cols; ++j)
        ASSERT_NEAR(value(first + i, j), scale * expected(i, j), 1e-5) << parameter << " " << i << "," << j;
  }
  void expect_stacks(const ParameterStore& store, const std::string& block, double inner_scale) const {
    for (Index e = 0; e < kExperts; ++e) {
      expect_added(store, "mlp.experts.gate_up_proj", e * 2 * kWidth, 2 * kWidth, inner_scale,
                   [&](Index i, Index j) { return product(block + ".base_layer", i, j, e, kExperts); });
      expect_added(store, "mlp.experts.down_proj", e * kHidden, kHidden, 1.5,
                   [&](Index i, Index j) { return product(block, i, j, e, kExperts); });
    }
  }

  static constexpr Index kHidden = 24, kWidth = 20, kExperts = 4;  // of tiny_config()
  static inline const std::string kLayer = "base_model.model.model.layers.0.";
  testing::TemporaryFolder folder_;
  Document document_;
  std::map<std::string, Matrix> tensors_;
  std::uint64_t seed_ = 0;
};

ModelConfig with_layout(ExpertLayout layout) {
  ModelConfig config = testing::tiny_config();
  config.names.experts = layout;
  return config;
}

Document numbers(const std::map<std::string, double>& entries) {
  Document document;
  for (const auto& [key, number] : entries) document.set(key, number);
  return document;
}

TEST_F(AdapterReading, GivesEachModuleTheRankAndAlphaOfTheFirstPatternThatFitsItsEnd) {
  add(kLayer + "self_attn.q_proj", kHidden, 32, 3);
  add(kLayer + "self_attn.k_proj", kHidden, 16, 5);
  add(kLayer + "self_attn.o_proj", 32, kHidden);
  document_.set("rank_pattern", numbers({{"q_proj", 3}, {R"(.*layers\.\d+\.self_attn\.[kv]_proj)", 5}}));
  document_.set("alpha_pattern", numbers({{"layers.0.self_attn.q_proj", 12}, {"proj", 99}, {"_proj", 7}}));
  const auto store = added(testing::tiny_config());
  const std::string qkv = "self_attn.qkv_proj.weight";
  const auto of = [&](const char* name) {
    return [this, path = kLayer + "self_attn." + name](Index i, Index j) { return product(path, i, j); };
  };
  expect_added(*store, qkv, 0, 32, 4, of("q_proj"));
  expect_added(*store, qkv, 32, 16, 3.0 / 5, of("k_proj"));
  expect_added(*store, "self_attn.o_proj.weight", 0, kHidden, 1.5, of("o_proj"));
}

TEST_F(AdapterReading, ScalesByTheRootOfAModulesOwnRank) {
  add(kLayer + "self_attn.o_proj", 32, kHidden, 4);
  document_.set("use_rslora", true);
  document_.set("rank_pattern", numbers({{"o_proj", 4}}));
  expect_added(*added(testing::tiny_config()), "self_attn.o_proj.weight", 0, kHidden, 1.5,
               [&](Index i, Index j) { return product(kLayer + "self_attn.o_proj", i, j); });
}

TEST_F(AdapterReading, RefusesRanksAndPatternsThatAreNone) {
  add(kLayer + "self_attn.o_proj", 32, kHidden);
  document_.set("rank_pattern", numbers({{"o_proj", 2.5}}));
  EXPECT_NE(refusal().find("\"rank_pattern\" of"), std::string::npos);
  document_.set("rank_pattern", numbers({{"(o_proj", 2}}));
  EXPECT_NE(refusal().find("is no regular expression"), std::string::npos);
  for (const char* pattern : {"o_proj\\11100000000008197101", "o_proj{99999999999999999999}"}) {
    document_.set("rank_pattern", numbers({{pattern, 2}}));
    EXPECT_NE(refusal().find("no regular expression that is known here"), std::string::npos) << pattern;
  }
  document_.set("rank_pattern", numbers({{"o_proj", 3}}));
  EXPECT_NE(refusal().find("lora_A.weight: expected [3,32], found [2,32]"), std::string::npos);
}

/// Transformers 5 stacks what a folder lists. Its gate_up_proj has twice the rank and alpha.
TEST_F(AdapterReading, AddsStacksToAListAndToStacks) {
  const std::string block = kLayer + "mlp.experts";
  add_stacks(block, 4);
  document_.set("rank_pattern", numbers({{R"(.*\.gate_up_proj)", 4}}));
  document_.set("alpha_pattern", numbers({{R"(.*\.gate_up_proj)", 6}}));
  for (const ExpertLayout layout : {ExpertLayout::kList, ExpertLayout::kStacked}) {
    expect_stacks(*added(with_layout(layout)), block, 1.5);
    document_.set("target_parameters", std::vector<std::string>{"gate_up_proj", "down_proj"});
  }
}

TEST_F(AdapterReading, AddsAListToStacks) {
  const std::string expert = kLayer + "mlp.experts.3.";
  for (Index e = 0; e < kExperts; ++e)
    for (const char* part : {"gate_proj", "up_proj"})
      add(kLayer + "mlp.experts." + std::to_string(e) + "." + part, kHidden, kWidth);
  const auto store = added(with_layout(ExpertLayout::kStacked));
  expect_added(*store, "mlp.experts.gate_up_proj", 3 * 2 * kWidth + kWidth, kWidth, 1.5,
               [&](Index i, Index j) { return product(expert + "up_proj", i, j); });
}

/// A of [E r, out] and B of [in, r E]: the transposed product is added. Shapes tell, of one stack for all.
TEST_F(AdapterReading, AddsStacksWithInAndOutExchanged) {
  const std::string block = kLayer + "mlp.experts";
  add(block + ".base_layer", 2 * kWidth, kHidden, 2, kExperts);
  add(block, kHidden, kWidth, 2, kExperts);
  document_.set("target_parameters",
                std::vector<std::string>{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"});
  document_.set("peft_version", "0.18.1");
  for (const ExpertLayout layout : {ExpertLayout::kList, ExpertLayout::kStacked}) {
    const auto store = added(with_layout(layout));
    for (Index e = 0; e < kExperts; ++e)
      expect_added(*store, "mlp.experts.gate_up_proj", e * 2 * kWidth, 2 * kWidth, 1.5,
                   [&](Index i, Index j) { return product(block + ".base_layer", j, i, e, kExperts); });
  }
}

TEST_F(AdapterReading, AddsNothingToExpertsWithoutFactorsAndSaysHowMany) {
  add(kLayer + "mlp.experts.2.down_proj", kWidth, kHidden);
  const auto store = added(testing::tiny_config());
  EXPECT_EQ(modules_left_out(read(testing::tiny_config())), 3);
  expect_added(*store, "mlp.experts.down_proj", 2 * kHidden, kHidden, 1.5,
               [&](Index i, Index j) { return product(kLayer + "mlp.experts.2.down_proj", i, j); });
  expect_added(*store, "mlp.experts.down_proj", 0, 2 * kHidden, 0, [](Index, Index) { return 0.0; });
  const ModelConfig config = read(testing::tiny_config());
  ParameterStore trained(parameter_specs(config, {0, kExperts}));
  const std::string text =
      testing::message_of<ConfigError>([&] { load_adapter(trained, folder_.path(), config); });
  EXPECT_NE(text.find("has factors of 1 of the 4 experts"), std::string::npos) << text;
}

TEST_F(AdapterReading, OpensNamesWithOtherPrefixesAndTheAdaptersOwn) {
  const std::string module = "layers.0.self_attn.o_proj";
  for (const std::string prefix :
       {"base_model.model.model.", "model.", "base_model.model.", "base_model.model.base_model.model.model.",
        "base_model.model.model.language_model.", "module.base_model.model.model.", ""})
    for (const std::string own : {"", ".default", ".mine"}) {
      SCOPED_TRACE(prefix + own);
      tensors_.clear();
      add(prefix + module, 32, kHidden);
      const float expected = tensors_.at(prefix + module + ".lora_A.weight").view()(1, 2);
      rename("lora_A.weight", "lora_A" + own + ".weight");
      rename("lora_B.weight", "lora_B" + own + ".weight");
      const ModelConfig config = read(testing::tiny_config());
      EXPECT_EQ(config.adapter->modules, std::set<std::string>{"model." + module});
      ParameterStore store(parameter_specs(config, {0, kExperts}));
      load_adapter(store, folder_.path(), config);
      EXPECT_EQ(store.find("model.layers.0.self_attn.o_proj.weight.lora_A.0").value(1, 2), expected);
    }
}

/// One line for each kind, and the way out.
TEST_F(AdapterReading, RefusesTensorsThatAreNoFactorsOfTheTextModel) {
  add(kLayer + "self_attn.o_proj", 32, kHidden);
  const auto refused = [&](const std::string& path, const std::string& words) {
    add(path, kHidden, kHidden);
    const std::string text = refusal();
    EXPECT_NE(text.find(words), std::string::npos) << text;
    EXPECT_NE(text.find("merge_and_unload"), std::string::npos) << text;
    tensors_.erase(path + ".lora_A.weight");
    tensors_.erase(path + ".lora_B.weight");
  };
  refused("base_model.model.lm_head", "2 tensors of lm_head");
  refused("base_model.model.model.embed_tokens", "2 tensors of embed_tokens");
  refused("base_model.model.model.visual.layers.0.self_attn.o_proj", "no factors of the text model's layers");
  refused("model.layers.0.self_attn.o_proj", "of modules that have other factors in the file");
}

TEST_F(AdapterReading, RefusesByKeyWithoutALineForEachTensor) {
  add(kLayer + "self_attn.o_proj", 32, kHidden);
  tensors_[kLayer + "self_attn.o_proj.lora_magnitude_vector"] = testing::random_matrix(1, kHidden, 1);
  const std::string head = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3, )";
  for (const std::string key :
       {"\"use_dora\": true", "\"use_qalora\": true", "\"alora_invocation_tokens\": [3, 5]",
        "\"layer_replication\": [[0, 2], [1, 3]]", "\"trainable_token_indices\": [3, 5]",
        "\"trainable_token_indices\": {\"embed_tokens\": [3]}", "\"init_lora_weights\": \"pissa\"",
        "\"init_lora_weights\": \"OLoRA\"", "\"init_lora_weights\": \"something_new\"",
        "\"use_something_new\": true", "\"something_new\": 3"}) {
    document_ = Document::parse(head + key + "}", "test");
    const std::string text = refusal();
    EXPECT_NE(text.find(key.substr(0, key.find(':') + 1)), std::string::npos) << key << " in " << text;
    EXPECT_EQ(text.find("tensor"), std::string::npos) << text;
  }
  tensors_.erase(kLayer + "self_attn.o_proj.lora_magnitude_vector");
  for (const std::string key :
       {"\"use_something_new\": false", "\"something_new\": null", "\"something_new\": []",
        "\"something_new\": {}", "\"init_lora_weights\": \"eva\"", "\"init_lora_weights\": \"Gaussian\"",
        "\"init_lora_weights\": \"orthogonal\"", "\"init_lora_weights\": \"mica\"",
        "\"init_lora_weights\": false", "\"init_lora_weights\": null", "\"fan_in_fan_out\": true",
        "\"bias\": \"all\"", "\"lora_bias\": true", "\"modules_to_save\": [\"lm_head\"]",
        "\"runtime_config\": {\"ephemeral_gpu_offload\": true}", "\"qalora_group_size\": 16"}) {
    document_ = Document::parse(head + key + "}", "test");
    EXPECT_NO_THROW(checked_adapter(folder_.path(), read(testing::tiny_config()))) << key;
  }
}

/// What PEFT finds in the file alone changes anything.
TEST_F(AdapterReading, RefusesBiasesAndWholeModulesWhereTheFileHoldsThem) {
  const auto refused = [&](const std::string& key, const std::string& tensor) {
    tensors_.clear();
    add(kLayer + "self_attn.o_proj", 32, kHidden);
    tensors_[tensor] = testing::random_matrix(1, kHidden, 1);
    document_ = Document::parse(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3, )" + key + "}", "test");
    const std::string text = refusal();
    EXPECT_NE(text.find(key.substr(0, key.find(':') + 1)), std::string::npos) << key << " in " << text;
    EXPECT_EQ(text.find("tensor"), std::string::npos) << text;
  };
  refused("\"bias\": \"lora_only\"", kLayer + "self_attn.o_proj.bias");
  refused("\"lora_bias\": true", kLayer + "self_attn.o_proj.lora_B.bias");
  refused("\"modules_to_save\": [\"score\", \"lm_head\"]", "base_model.model.lm_head.weight");
}

/// PEFT trains them with lora_only and leaves them out of the file.
TEST_F(AdapterReading, RefusesBiasesThatWereTrainedAndLost) {
  add(kLayer + "self_attn.o_proj", 32, kHidden);
  document_ =
      Document::parse(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3, "bias": "lora_only"})", "test");
  write();
  ModelConfig config = testing::tiny_config();
  EXPECT_NO_THROW(read_adapter_settings(folder_.path(), config));
  config.attention_bias = true;
  EXPECT_THROW(read_adapter_settings(folder_.path(), config), ConfigError);
}

/// By leaf names or a pattern of the whole, exclusions, and layers, as PEFT 0.20 matches them.
TEST_F(AdapterReading, RefusesFactorsThatPeftWouldLeaveOut) {
  for (const std::string layer : {"0", "1"})
    for (const char* module : {"q_proj", "v_proj"}) {
      const bool is_query = module[0] == 'q';
      add("base_model.model.model.layers." + layer + ".self_attn." + module, kHidden, is_query ? 32 : 16);
    }
  const auto open = [&](const std::string& keys, const std::set<std::string>& ignored = {}) {
    document_ = Document::parse(R"({"peft_type": "LORA", "r": 2, "lora_alpha": 3, )" + keys + "}", "test");
    write();
    return read_adapter_settings(folder_.path(), testing::tiny_config(), ignored).modules.size();
  };
  const std::string all = R"("target_modules": ["q_proj", "v_proj"])";
  for (const std::string& keys :
       {all, all + R"(, "exclude_modules": ["k_proj", "j"])", all + R"(, "layers_to_transform": [0, 1])",
        all + R"(, "layers_to_transform": [0, 1], "layers_pattern": "layers")",
        all + R"(, "layers_to_transform": [], "layers_pattern": [])",
        std::string(R"("target_modules": "all-linear")"), std::string(R"("target_modules": null)"),
        std::string(R"("target_modules": ".*\\.[qv]_proj", "exclude_modules": "q_proj")"),
        std::string(R"x("target_modules": "(?P<any>no)")x"), std::string(R"x("target_modules": "\\Ano\\Z")x"),
        std::string(R"("target_modules": ["model.layers.0.self_attn.q_proj", "layers.1.self_attn.q_proj",
                        "self_attn.v_proj"])")})
    EXPECT_EQ(open(keys), 4u) << keys;
  const auto refused = [&](const std::string& keys, const std::string& key, const std::string& first) {
    const std::string text = testing::message_of<ConfigError>([&] { open(keys); });
    EXPECT_NE(text.find("\"" + key + "\": "), std::string::npos) << keys << " " << text;
    EXPECT_NE(text.find("the first of them model.layers." + first), std::string::npos) << text;
    EXPECT_NE(text.find("ignored keys = " + key), std::string::npos) << text;
    EXPECT_EQ(open(keys, {key}), 4u);
  };
  refused(R"("target_modules": ["q_proj"])", "target_modules", "0.self_attn.v_proj");
  refused(R"("target_modules": ["q_proj", "proj"])", "target_modules", "0.self_attn.v_proj");
  refused(R"("target_modules": "[qv]_proj")", "target_modules", "0.self_attn.q_proj");
  refused(R"("target_modules": ".*layers\\.0\\..*")", "target_modules", "1.self_attn.q_proj");
  refused(R"("target_modules": null, "target_parameters": ["experts.down_proj"])", "target_modules",
          "0.self_attn.q_proj");
  refused(all + R"(, "exclude_modules": ["q_proj"])", "exclude_modules", "0.self_attn.q_proj");
  refused(all + R"(, "exclude_modules": ".*1.*v_proj")", "exclude_modules", "1.self_attn.v_proj");
  refused(all + R"(, "layers_to_transform": [1])", "layers_to_transform", "0.self_attn.q_proj");
  refused(all + R"(, "layers_to_transform": 0, "layers_pattern": ["h", "layers"])", "layers_to_transform",
          "1.self_attn.q_proj");
}

/// Not as a module that the model lacks.
TEST_F(AdapterReading, RefusesFactorsOfWeightsThatCanHaveNone) {
  add(kLayer + "self_attn.o_proj", 32, kHidden);
  add(kLayer + "self_attn.q_norm", kHidden, 8);
  const std::string text = refusal();
  EXPECT_NE(text.find("can have none here, the first of them model.layers.0.self_attn.q_norm; merge it"),
            std::string::npos)
      << text;
}

/// Transformers 5 calls granitemoe's stacks as it calls those of others.
TEST_F(AdapterReading, OpensStacksAsTransformersFiveHasThemInMemory) {
  const ModelConfig model = testing::model("granitemoe");
  const Index experts = model.num_experts, width = model.moe_intermediate_size, hidden = model.hidden_size;
  const std::string block = kLayer + "block_sparse_moe.experts";
  add(block + ".base_layer", hidden, 2 * width, 2, experts);
  add(block, width, hidden, 2, experts);
  document_.set("target_parameters", std::vector<std::string>{"experts.gate_up_proj", "experts.down_proj"});
  document_.set("target_modules", std::vector<std::string>{"q_proj"});
  const auto store = added(model);
  const ModelConfig config = read(model);
  EXPECT_EQ(AdapterMerge(folder_.path(), config).tensors(),
            (std::set<std::string>{"model.layers.0.block_sparse_moe.input_linear.weight",
                                   "model.layers.0.block_sparse_moe.output_linear.weight"}));
  for (Index e = 0; e < experts; ++e) {
    expect_added(*store, "mlp.experts.gate_up_proj", e * 2 * width, 2 * width, 1.5,
                 [&](Index i, Index j) { return product(block + ".base_layer", i, j, e, experts); });
    expect_added(*store, "mlp.experts.down_proj", e * hidden, hidden, 1.5,
                 [&](Index i, Index j) { return product(block, i, j, e, experts); });
  }
}

TEST_F(AdapterReading, NamesTheFileOrTheFolderThatHasTheAdapter) {
  const auto said = [&] {
    return testing::message_of<Error>([&] { read_adapter_settings(folder_.path(), testing::tiny_config()); });
  };
  std::filesystem::create_directory(folder_ / "default");
  document_.write(folder_ / "default" / kAdapterConfigFile);
  EXPECT_NE(said().find("the adapter is in " + (folder_ / "default").string()), std::string::npos) << said();
  document_.write(folder_ / kAdapterConfigFile);
  testing::write_bytes(folder_ / "adapter_model.bin", "PK");
  EXPECT_NE(said().find("adapter_model.bin, but only safetensors"), std::string::npos) << said();
}

TEST_F(AdapterReading, DoesNotJudgeStacksByTargetModules) {
  add_stacks(kLayer + "mlp.experts");
  document_.set("target_modules", std::vector<std::string>{"q_proj"});
  EXPECT_EQ(read(with_layout(ExpertLayout::kStacked)).adapter->modules.size(), 2u);
}

/// An initialisation and a key that are unknown are passed over together.
TEST_F(AdapterReading, SaysTheWholeValueThatPassesUnknownKeysOver) {
  add(kLayer + "self_attn.o_proj", 32, kHidden);
  document_.set("init_lora_weights", "something_new");
  document_.set("mystery", true);
  EXPECT_NE(refusal().find("ignored keys = init_lora_weights,mystery"), std::string::npos) << refusal();
  EXPECT_NO_THROW(
      read_adapter_settings(folder_.path(), testing::tiny_config(), {"init_lora_weights", "mystery"}));
}

TEST_F(AdapterReading, SaysWhichModulesHaveNoFactors) {
  add(kLayer + "self_attn.o_proj", 32, kHidden);
  const auto remarks = [&](const std::vector<std::string>& targets) {
    document_.set("target_modules", targets);
    return read(testing::tiny_config()).adapter->remarks;
  };
  EXPECT_TRUE(remarks({"layers.0.self_attn.o_proj"}).empty());
  const std::vector<std::string> said = remarks({"o_proj", "lm_head"});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(
      said[0].find("names 2 modules that adapter_model.safetensors has no factors for, the first of them "
                   "model.layers.1.self_attn.o_proj"),
      std::string::npos)
      << said[0];
}

TEST(AdapterNames, OfModulesThatPeftDoesNotLoadAreSaid) {
  ModelConfig config = testing::tiny_config();  // qwen3_moe, with one dense layer
  const auto lost = [&](const std::string& target) {
    config.adapter = resolve_adapter(config, {.targets = {target}});
    return lost_in_peft(config);
  };
  EXPECT_TRUE(lost("attention").empty());
  EXPECT_TRUE(lost("experts").empty());
  EXPECT_EQ(lost("all"), std::vector<std::string>{"mlp (with transformers 5)"});
  config.model_type = "qwen2_moe";
  EXPECT_EQ(lost("experts"), std::vector<std::string>{"experts (with transformers 5)"});
  config.names.experts = ExpertLayout::kStacked;
  EXPECT_TRUE(lost("experts").empty());
}

/// What PEFT 0.20 finds in the classes of 5.15 (tests/clients loads them there).
TEST(AdapterNames, OfFamiliesOfTransformers5AreThoseInMemory) {
  const struct {
    std::string type, target;
    std::vector<std::string> modules, parameters;  // one each
  } cases[] = {
      {"laguna", "shared", {"model.layers.1.mlp.shared_experts.up_proj"}, {}},
      {"laguna", "*.g_proj", {"model.layers.1.self_attn.g_proj"}, {}},
      {"laguna", "experts", {}, {"model.layers.1.mlp.experts.gate_up_proj"}},
      {"hy_v3", "*.shared_mlp.*", {"model.layers.1.mlp.shared_experts.up_proj"}, {}},
      {"hy_v3", "router", {}, {"model.layers.1.mlp.gate.weight"}},
      {"afmoe", "*.self_attn.gate_proj", {}, {"model.layers.1.self_attn.gate_proj.weight"}},
      {"afmoe", "router", {}, {"model.layers.1.mlp.router.gate.weight"}},
      {"afmoe", "experts", {"model.layers.1.mlp.experts.0.up_proj"}, {}},
      {"mimo_v2_flash", "*.experts.*.gate_proj", {"model.layers.1.mlp.experts.0.gate_proj"}, {}},
      {"mimo_v2_flash", "*.experts.*", {}, {"model.layers.1.mlp.experts.down_proj"}},
  };
  for (const auto& c : cases) {
    SCOPED_TRACE(c.type + " " + c.target);
    ModelConfig config = testing::model(c.type);
    config.names = checkpoint_names(*find_family(c.type), {"model.layers.1.mlp.experts.0.up_proj.weight"});
    config.adapter = resolve_adapter(config, {.targets = {c.target}});
    const Document document = adapter_document(config);
    const auto names = [&](const char* key) {
      return document.has(key) ? document.texts(key) : std::vector<std::string>();
    };
    const std::vector<std::string> modules = names("target_modules"), parameters = names("target_parameters");
    EXPECT_EQ(modules.empty(), c.modules.empty());
    EXPECT_EQ(parameters.empty(), c.parameters.empty());
    for (const std::string& name : c.modules) EXPECT_EQ(std::ranges::count(modules, name), 1) << name;
    for (const std::string& name : c.parameters) EXPECT_EQ(std::ranges::count(parameters, name), 1) << name;
    // Of one half of a stack there is no parameter, and no list that PEFT knows.
    EXPECT_EQ(lost_in_peft(config).empty(), c.target != "*.experts.*.gate_proj");
  }
}

/// Rows of B go where the rows of the weight go, in every family: gated queries and delta nets have them in
/// another order than the file. What is held for training is what is merged.
TEST(AdapterRows, LieAsTheRowsOfTheirWeightInEveryFamily) {
  for (const auto& golden : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    SCOPED_TRACE(golden.filename().string());
    ModelConfig config = ModelConfig::read(golden);
    if (adaptable_modules(config).empty()) continue;
    config.adapter = resolve_adapter(config, {.rank = 2, .alpha = 3, .targets = {"all"}});
    const testing::TemporaryFolder folder;
    std::vector<Matrix> values;
    std::vector<std::span<const float>> spans;
    const std::vector<TensorSpec> specs = adapter_tensor_specs(config);
    for (const TensorSpec& spec : specs)
      values.push_back(testing::random_matrix(spec.shape[0], spec.shape[1], values.size() + 1));
    for (const Matrix& matrix : values) spans.push_back(matrix.view().flat());
    write_safetensors(folder / kAdapterFile, specs, spans);
    adapter_document(config).write(folder / kAdapterConfigFile);
    ParameterStore store(own_parameters(config));
    merge_adapter(store, folder.path(), config);
    const AdapterMerge merge(folder.path(), config);
    const SafetensorsFile file(folder / kAdapterFile);
    std::map<std::string, std::vector<float>> in_file;
    for (const Parameter& parameter : store.parameters())
      for (const HfSlice& slice : parameter.spec.slices) {
        if (!merge.tensors().contains(slice.name)) continue;
        Index count = 1;
        for (const Index size : slice.shape) count *= size;
        std::vector<float>& sums = in_file[slice.name];
        if (sums.empty()) {
          sums.assign(static_cast<std::size_t>(count), 0.0f);
          merge.add_to(slice.name, sums);
        }
        const MatrixView rows = parameter.value.rows_from(slice.row_begin, slice.rows);
        const std::string module = slice.name.substr(0, slice.name.size() - std::string(".weight").size());
        const std::string path = "base_model.model." + module;
        std::vector<float> a, b;
        if (slice.shape.size() == 2 && file.tensors().contains(path + ".lora_A.weight")) {
          a = file.floats(path + ".lora_A.weight");
          b = file.floats(path + ".lora_B.weight");
        }
        for (Index i = 0; i < rows.size(); i += 7) {
          const Index place = place_in_file(slice, rows.cols, i);
          ASSERT_NEAR(sums[at(place)], rows.data[i], 1e-5) << slice.name << " " << i;
          if (a.empty()) continue;
          const Index row = place / rows.cols, col = place % rows.cols;
          const double expected = 1.5 * (double{b[at(2 * row)]} * a[at(col)] +
                                         double{b[at(2 * row + 1)]} * a[at(rows.cols + col)]);
          ASSERT_NEAR(rows.data[i], expected, 1e-5) << slice.name << " row " << row;
        }
      }
  }
}

}  // namespace
}  // namespace moeloom
