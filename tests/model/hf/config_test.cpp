#include "moeloom/model/hf/config.hpp"

#include "model/hf/family_models.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/io/safetensors.hpp"

#include <functional>
#include <limits>

#include "support/files.hpp"
#include "support/golden.hpp"
#include "support/golden_model.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

const std::string kMinimal = R"("model_type": "qwen3_moe", "vocab_size": 160, "hidden_size": 48,
  "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 8,
  "num_experts_per_tok": 2, "moe_intermediate_size": 72)";

ModelConfig parsed(const std::string& more) {
  return ModelConfig::from(Document::parse("{" + kMinimal + (more.empty() ? "" : ", " + more) + "}", "test"));
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ModelConfig, WritesEveryGoldenConfigBackAsItWasWithRopeInBothSpellings) {
  for (const auto& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    const ModelConfig config = ModelConfig::read(folder);
    Document written = config.to_document();
    Document source = Document::read(folder / "config.json");
    EXPECT_EQ(ModelConfig::from(written).to_document().dump(), written.dump()) << folder;
    if (config.family().text_config) continue;
    for (const char* key : {"rope_theta", "rope_scaling", "rope_parameters", "rope_local_base_freq"})
      if (std::ranges::count(source.keys(), key) == 0) written.erase(key);
    // Which released files say in other words (family_test.cpp).
    for (Document* document : {&written, &source})
      for (const char* key : {"per_layer_config", "global_head_dim", "num_global_key_value_heads"})
        document->erase(key);
    EXPECT_EQ(written.dump(), source.dump()) << folder;
  }
}

TEST(ModelConfig, CountsTheParametersOfGoldenModels) {
  for (const auto& folder : testing::golden_cases("models", testing::is_of_a_family_that_runs)) {
    Index elements = 0;
    const SafetensorsFile file(folder / "model.safetensors");
    for (const auto& [name, info] : file.tensors())
      if (!name.ends_with("e_score_correction_bias") && !name.ends_with("expert_bias") &&
          !name.ends_with("layer_scalar"))
        elements += info.elements();
    EXPECT_EQ(ModelConfig::read(folder).total_parameters(), elements) << folder;
  }
}

TEST(ModelConfig, CountsOnlyTheChosenExpertsAsActive) {
  const ModelConfig config = parsed("");
  EXPECT_EQ(config.total_parameters() - config.active_parameters(), 2 * 6 * 3 * 48 * 72);
}

/// What a document says where all else is as in kMinimal.
std::string refusal_with(const std::string& key, const std::string& value) {
  Document document = Document::parse("{" + kMinimal + "}", "test");
  Document given = Document::parse("{\"value\": " + value + "}", "test");
  if (value.starts_with('['))
    document.set(key, given.integers("value"));
  else
    document.set(key, given.integer("value"));
  return refusal([&] { ModelConfig::from(document); });
}

TEST(ModelConfig, RefusesMoreTensorsThanAnyModelHas) {
  EXPECT_NE(refusal_with("num_hidden_layers", "4097").find("num_hidden_layers = 4097 must lie between"),
            std::string::npos);
  Document document = Document::parse("{" + kMinimal + "}", "test");
  document.set("num_hidden_layers", 4096);
  document.set("num_experts", 65);
  EXPECT_EQ(refusal([&] { ModelConfig::from(document); }),
            "num_hidden_layers = 4096 times num_experts = 65 is more than 262144 experts in all");
  document.set("num_experts", 64);
  EXPECT_EQ(refusal([&] { ModelConfig::from(document); }), "");
}

TEST(ModelConfig, RefusesAListOfDenseLayersLongerThanTheModel) {
  EXPECT_NE(refusal_with("mlp_only_layers", "[0, 1, 0]").find("mlp_only_layers names 3 layers of 2"),
            std::string::npos);
  EXPECT_NE(refusal_with("num_hidden_layers", "-9223372036854775808"), "");
}

TEST(ModelConfig, RefusesSizesWhoseSumsOrProductsLeave64Bits) {
  const char* const kMost = "9223372036854775807";
  const char* const kLeast = "-9223372036854775808";
  for (const char* const key : {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
                                "head_dim", "num_experts", "num_experts_per_tok", "moe_intermediate_size"})
    for (const char* const value : {kMost, kLeast}) EXPECT_NE(refusal_with(key, value), "") << key << value;
  Document padding = Document::parse("{" + kMinimal + "}", "test");
  padding.set("vocab_size", Index{-1});
  padding.set("pad_token_id", std::numeric_limits<Index>::min());
  EXPECT_NE(refusal([&] { ModelConfig::from(padding); }), "");
  const std::string latent = R"({"model_type": "deepseek_v3", "vocab_size": 8, "hidden_size": 8,
    "num_hidden_layers": 4, "num_attention_heads": 2, "kv_lora_rank": 4, "v_head_dim": 4,
    "n_routed_experts": 8, "num_experts_per_tok": 1, "moe_intermediate_size": 4, "intermediate_size": 4,)";
  for (const char* const dims : {R"("qk_rope_head_dim": 2, "qk_nope_head_dim": 9223372036854775807})",
                                 R"("qk_nope_head_dim": 2, "qk_rope_head_dim": 9223372036854775807})"}) {
    const std::string said = refusal([&] { ModelConfig::from(Document::parse(latent + dims, "test")); });
    EXPECT_NE(said.find("head_dim"), std::string::npos);
    EXPECT_EQ(said.find(" must be qk_"), std::string::npos) << "a fallback is no other number: " << said;
  }
}

/// A family's model with some keys that say other sizes.
std::string refusal_of_sizes(const std::string& type,
                             const std::vector<std::pair<std::string, Index>>& sizes) {
  Document document = testing::model(type).source;
  for (const auto& [key, size] : sizes) document.set(key, size);
  return refusal([&] { ModelConfig::from(document); });
}

TEST(ModelConfig, CountsTheHeadsOfEachLayerForTheMostParameters) {
  constexpr Index kHidden = Index{1} << 24, kHeads = Index{1} << 13, kWide = 65536;
  const std::string expected = "the model would have more than 1e15 parameters";
  Document gemma = testing::model("gemma4_text").source;
  std::vector<std::string> types;
  for (Index layer = 0; layer < 256; ++layer)
    types.push_back(layer % 2 == 0 ? "sliding_attention" : "full_attention");
  gemma.set("layer_types", types);
  gemma.set("num_hidden_layers", 256);
  gemma.set("hidden_size", kHidden);
  gemma.set("num_attention_heads", kHeads);
  gemma.set("head_dim", 2);
  gemma.set("global_head_dim", kWide);
  EXPECT_EQ(refusal([&] { ModelConfig::from(gemma); }), expected);
  EXPECT_EQ(
      refusal_of_sizes("mimo_v2_flash",
                       {{"hidden_size", kHidden}, {"num_attention_heads", kHeads}, {"v_head_dim", kWide}}),
      expected);
  EXPECT_EQ(refusal_of_sizes("mimo_v2_flash", {{"num_attention_heads", kHeads}, {"v_head_dim", 64}}), "");
}

TEST(ModelConfig, RefusesSizesThatNoLayerHasWhereTheyAreNone) {
  for (const Index size : {Index{-1}, Index{1} << 62, std::numeric_limits<Index>::max()})
    EXPECT_NE(refusal_of_sizes("qwen3_moe", {{"intermediate_size", size}}).find("intermediate_size = "),
              std::string::npos)
        << size;
  EXPECT_EQ(refusal_of_sizes("qwen3_moe", {{"intermediate_size", 0}}), "");
  EXPECT_NE(refusal_of_sizes("mimo_v2_flash", {{"num_key_value_heads", Index{1} << 62}}), "");
}

TEST(ModelConfig, RefusesLengthsOfWhichLongropeMakesNoFactor) {
  const auto refusal_at = [](const std::string& length) {
    const std::string ones = "[1, 1, 1, 1]";
    return refusal([&] {
      testing::model("phi3", R"("rope_scaling": {"type": "longrope", "short_factor": )" + ones +
                                 R"(, "long_factor": )" + ones +
                                 R"(}, "original_max_position_embeddings": )" + length);
    });
  };
  for (const std::string length : {"1e300", "-1e300", "1", "0", "2147483649"})
    EXPECT_NE(refusal_at(length).find("must lie between 2 and 2147483648"), std::string::npos) << length;
  for (const std::string length : {"2", "4096", "2147483648"}) EXPECT_EQ(refusal_at(length), "") << length;
}

TEST(ModelConfig, RefusesSpansOfAttentionThatNoSequenceHas) {
  constexpr Index kMost = Index{1} << 31;
  for (const auto& [type, key] :
       {std::pair("mixtral", "sliding_window"), std::pair("llama4_text", "attention_chunk_size")}) {
    EXPECT_EQ(refusal_of_sizes(type, {{key, kMost}}), "");
    for (const Index span : {kMost + 1, std::numeric_limits<Index>::max()})
      EXPECT_NE(refusal_of_sizes(type, {{key, span}}).find(std::string(key) + " = " + std::to_string(span)),
                std::string::npos);
  }
}

/// 4.57's class turns q and k only where the key says "rope", which is its fallback for an absent one.
TEST(ModelConfig, RefusesANullThatIsAnotherValue) {
  const auto refusal_with_key = [](const std::string& value) {
    return refusal([&] { testing::model("granitemoe", R"("position_embedding_type": )" + value); });
  };
  EXPECT_EQ(refusal_with_key("\"rope\""), "");
  for (const std::string value : {"null", "\"nope\""})
    EXPECT_NE(refusal_with_key(value).find("positions are embedded by rotation here"), std::string::npos)
        << value;
}

TEST(ModelConfig, TakesHuggingFaceDefaultsForAbsentKeys) {
  const ModelConfig config = parsed("");
  EXPECT_FALSE(config.norm_topk_prob);
  EXPECT_FALSE(config.output_router_logits);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.head_dim, 12);
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.decoder_sparse_step, 1);
}

TEST(ModelConfig, ReadsBothSpellingsOfTheRotaryBase) {
  EXPECT_EQ(parsed(R"("rope_theta": 5e5)").rope_theta, 5e5);
  const ModelConfig config = parsed(R"("rope_parameters": {"rope_theta": 1e6, "rope_type": "default"})");
  EXPECT_EQ(config.rope_theta, 1e6);
  EXPECT_EQ(config.to_document().number("rope_theta"), 1e6);
  EXPECT_EQ(ModelConfig::from(config.to_document()).rope_theta, 1e6);
}

TEST(ModelConfig, ReadsBothSpellingsOfRopeBesideEachOtherIfTheySayTheSame) {
  const std::string yarn = R"("rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 64)";
  const std::string both = R"("rope_theta": 1e6, "rope_scaling": {)" + yarn + R"(}, "rope_parameters": {)" +
                           yarn + R"(, "rope_theta": 1e6})";
  EXPECT_EQ(std::get<YarnScaling>(parsed(both).rope_scaling).factor, 4);
  // 5.15 takes rope_parameters where the other is null.
  const ModelConfig beside_null = parsed(R"("rope_scaling": null, "rope_parameters": {)" + yarn + "}");
  EXPECT_EQ(std::get<YarnScaling>(beside_null.rope_scaling).factor, 4);
  EXPECT_EQ(beside_null.to_document().object("rope_scaling").number("factor"), 4) << "which 4.57 reads";
}

TEST(ModelConfig, SaysTheNumberOfExpertsAsBothVersionsDo) {
  const std::string without = R"({"model_type": "qwen3_moe", "vocab_size": 160, "hidden_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 72, )";
  const auto read = [&](const std::string& experts) {
    return ModelConfig::from(Document::parse(without + experts + "}", "test"));
  };
  EXPECT_EQ(read(R"("num_local_experts": 4)").num_experts, 4);
  EXPECT_EQ(read(R"("num_local_experts": 4)").to_document().integer("num_experts"), 4);
  EXPECT_EQ(read(R"("num_local_experts": 4, "num_experts": 4)").num_experts, 4);
  EXPECT_NE(refusal([&] {
              read(R"("num_local_experts": 4, "num_experts": 8)");
            }).find("num_experts = 8 contradicts num_local_experts = 4"),
            std::string::npos);
}

/// 5.15 goes by the key around the text model's, and takes false where it is absent.
TEST(ModelConfig, TiesAModelOfSeveralPartsByItsOuterKey) {
  const auto read = [](const std::string& outer, const std::string& inner) {
    return ModelConfig::from(Document::parse(R"({"model_type": "qwen3_vl_moe", )" + outer +
                                                 R"("text_config": {"vocab_size": 160, "hidden_size": 48,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 72)" +
                                                 inner + "}}",
                                             "test"));
  };
  const std::string yes = R"("tie_word_embeddings": true)", no = R"("tie_word_embeddings": false)";
  EXPECT_FALSE(read(no + ", ", ", " + yes).tie_word_embeddings);
  EXPECT_TRUE(read(yes + ", ", ", " + no).tie_word_embeddings);
  EXPECT_FALSE(read("", ", " + yes).tie_word_embeddings);
  const Document written = read(no + ", ", ", " + yes).to_document();
  EXPECT_FALSE(written.boolean("tie_word_embeddings"));
  EXPECT_FALSE(written.object("text_config").boolean("tie_word_embeddings")) << "which 4.57 reads";
}

TEST(ModelConfig, PassesOverUnknownKeysThatAreNamed) {
  const std::string more =
      R"("frobnicate": 1, "rope_scaling": {"rope_type": "linear", "factor": 2, "knob": 3})";
  EXPECT_NE(refusal([&] { parsed(more); }).find("ignored keys = frobnicate,rope_scaling.knob"),
            std::string::npos);
  const Document document = Document::parse("{" + kMinimal + ", " + more + "}", "test");
  EXPECT_NE(refusal([&] {
              ModelConfig::from(document, {"frobnicate"});
            }).find("ignored keys = frobnicate,rope_scaling.knob"),
            std::string::npos)
      << "the whole list";
  const ModelConfig config = ModelConfig::from(document, {"frobnicate", "knob"});
  EXPECT_EQ(config.to_document().integer("frobnicate"), 1) << "written back as it was";
  EXPECT_NE(refusal([&] {
              ModelConfig::from(Document::parse("{" + kMinimal + R"(, "hidden_act": "relu"})", "test"),
                                {"hidden_act"});
            }),
            "")
      << "a key that is known is read";
}

TEST(ModelConfig, KeepsOtherKeysAndTheirOrder) {
  ModelConfig config = parsed(R"("_note": "kept", "eos_token_id": [1, 2], "torch_dtype": "bfloat16")");
  config.rms_norm_eps = 1e-5;
  const Document document = config.to_document();
  EXPECT_EQ(document.text("_note"), "kept");
  EXPECT_EQ(document.integers("eos_token_id"), (std::vector<Index>{1, 2}));
  EXPECT_EQ(document.number("rms_norm_eps"), 1e-5);
  EXPECT_EQ(document.text("torch_dtype"), "float32");  // what is written beside it
  EXPECT_FALSE(document.has("dtype"));
  const std::vector<std::string> keys = document.keys();
  EXPECT_EQ(keys[1], "vocab_size");
  EXPECT_EQ(keys[9], "_note");
}

TEST(SetWeightsDtype, SaysItWhereverTheTextModelHasItAndNowhereElse) {
  Document config = Document::parse(R"({"model_type": "qwen3_omni_moe", "torch_dtype": "float32",
    "thinker_config": {"dtype": "float32", "audio_config": {"dtype": "float32"},
    "text_config": {"torch_dtype": "float32"}}, "talker_config": {"dtype": "float32"}})",
                                    "test");
  set_weights_dtype(config, DType::kBF16);
  EXPECT_EQ(config.text("torch_dtype"), "bfloat16");
  EXPECT_FALSE(config.has("dtype"));
  const Document thinker = config.object("thinker_config");
  EXPECT_EQ(thinker.text("dtype"), "bfloat16");
  EXPECT_EQ(thinker.object("text_config").text("torch_dtype"), "bfloat16");
  EXPECT_FALSE(thinker.object("text_config").has("dtype"));
  EXPECT_EQ(thinker.object("audio_config").text("dtype"), "float32");
  EXPECT_EQ(config.object("talker_config").text("dtype"), "float32");
}

TEST(ModelConfig, FromFlagsReadsBackTheSame) {
  ModelConfig config;
  config.mlp_only_layers = {1, 3};
  config.router_aux_loss_coef = 0.1;
  config.initializer_range = 0.1 + 0.2;
  const Document document = config.to_document();
  EXPECT_EQ(document.texts("architectures"), (std::vector<std::string>{"Qwen3MoeForCausalLM"}));
  EXPECT_EQ(document.text("dtype"), "float32");
  const ModelConfig again = ModelConfig::from(document);
  EXPECT_EQ(again.mlp_only_layers, config.mlp_only_layers);
  EXPECT_EQ(again.initializer_range, config.initializer_range);
  EXPECT_EQ(again.norm_topk_prob, config.norm_topk_prob);
  EXPECT_EQ(again.to_document().dump(), document.dump());
}

TEST(ModelConfig, AcceptsWhatChangesNothing) {
  for (
      const std::string more :
      {R"("attention_dropout": 0.0, "attention_bias": false)", R"("rope_scaling": null)",
       R"("use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28)",
       R"("use_sliding_window": true, "sliding_window": null)", R"("pad_token_id": null)",
       R"("rope_scaling": {"rope_type": "default"})",
       R"("layer_types": ["full_attention", "full_attention"])",
       R"("unsloth_version": "2025.9", "unsloth_fixed": true, "pruned_heads": {}, "quantization": null)",
       R"("original_max_position_embeddings": 4096)", R"("_name_or_path": "x", "use_cache": true)",
       R"("something": null, "new": false, "a": [], "b": {}, "c": "", "rope_scaling": {"type": "linear", "factor": 2,
           "d": false}, "gradient_checkpointing": true, "keys_to_ignore_at_inference": ["past_key_values"])",
       R"("license": "mit", "tags": ["moe"], "library_name": "transformers", "pipeline_tag": "text-generation",
           "base_model": "x", "datasets": ["y"], "language": "en", "transformers.js_config": {"dtype": "q4"})",
       R"("bos_token_id": 1, "transformers_version": "5.0")"})
    EXPECT_EQ(refusal([&] { parsed(more); }), "") << more;
}

/// Transformers 4 wrote its settings of generation here.
TEST(ModelConfig, LeavesGenerationToWhoeverGenerates) {
  const ModelConfig config = parsed(R"("max_length": 20, "do_sample": false, "top_k": 50, "top_p": 1.0,
    "temperature": 1.0, "num_beams": 1, "repetition_penalty": 1.0, "bad_words_ids": null)");
  EXPECT_EQ(config.num_experts_per_tok, 2);
  EXPECT_EQ(config.to_document().integer("top_k"), 50) << "written back as it was";
}

TEST(ModelConfig, RefusesByNameWhatWouldChangeTheModel) {
  const struct {
    std::string more, expected;
  } cases[] = {
      {R"("attention_dropout": 0.1)", "attention_dropout = 0.1 must be 0"},
      {R"("use_sliding_window": true, "sliding_window": 0)", "sliding_window = 0 must be at least 1"},
      {R"("rope_scaling": {"type": "dynamic", "factor": 2})", "rope_scaling.rope_type = \"dynamic\""},
      {R"("rope_scaling": {"type": "yarn"})", "key rope_scaling.factor is missing"},
      {R"("rope_scaling": {"type": "linear", "rope_type": "yarn", "factor": 2})", "contradicts"},
      {R"("rope_scaling": {"type": "linear", "factor": 2, "mscale": 1})",
       "unknown keys: rope_scaling.mscale"},
      {R"("rope_parameters": {"factor": 4})", "rope_parameters.factor"},
      {R"("rope_theta": 1e4, "rope_parameters": {"rope_theta": 1e6})", "differ"},
      {R"("rope_scaling": {"type": "linear", "factor": 2}, "rope_parameters": {"rope_type": "default"})",
       "rope_scaling and rope_parameters say different things"},
      {R"("rope_scaling": {"type": "yarn", "factor": 2, "original_max_position_embeddings": 8},
        "original_max_position_embeddings": 16)",
       "original_max_position_embeddings = 8 contradicts"},
      {R"("pruned_heads": {"0": [1]})", "pruned_heads must be null or {}"},
      {R"("quantization": {"bits": 4})", "quantization is set"},
      {R"("per_layer_config": {"0": {}})", "per_layer_config is set"},
      {R"("partial_rotary_factor": 0.5)", "partial_rotary_factor"},
      {R"("hidden_act": "relu")", "hidden_act = \"relu\""},
      {R"("pad_token_id": 160)", "pad_token_id = 160 is no row of vocab_size = 160"},
      {R"("layer_types": ["full_attention", "sliding_attention"])", "layer_types says \"sliding_attention\""},
      {R"("layer_types": ["full_attention", "linear_attention"])", "layer_types holds \"linear_attention\""},
      {R"("layer_types": ["full_attention"])", "layer_types has 1 entries"},
      {R"("decoder_sparse_step": 2)", "key intermediate_size is missing"},
      {R"("quantization_config": {"bits": 4})", "quantization_config.quant_method = \"\" is not supported"},
      {R"("shared_expert_gate": 1, "qkv_bias": true)", "unknown keys: shared_expert_gate, qkv_bias"},
  };
  for (const auto& c : cases) {
    const std::string text = refusal([&] { parsed(c.more); });
    EXPECT_NE(text.find(c.expected), std::string::npos) << c.more << " gave: " << text;
  }
}

TEST(ModelConfig, TakesNullAsPythonDoes) {
  // None is false where a truth is asked for, whatever the fallback.
  const auto glm = [](const std::string& bias) {
    return ModelConfig::from(Document::parse(R"({"model_type": "glm4", "vocab_size": 160, "hidden_size": 48,
      "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "pad_token_id": null)" +
                                                 bias + "}",
                                             "test"));
  };
  EXPECT_TRUE(glm("").attention_bias);
  EXPECT_FALSE(glm(R"(, "attention_bias": null)").attention_bias);
  // Nor does it stand for a number that a class falls back to when the key is absent.
  for (const std::string key : {"rope_theta", "rms_norm_eps", "decoder_sparse_step", "hidden_act",
                                "partial_rotary_factor", "max_position_embeddings"}) {
    const std::string text = refusal([&] { parsed("\"" + key + "\": null"); });
    EXPECT_NE(text.find("key " + key + " is null"), std::string::npos) << key << " gave: " << text;
  }
  EXPECT_EQ(refusal([&] {
              parsed(R"("intermediate_size": null, "rope_scaling": {"type": "yarn", "factor": 2,
                "original_max_position_embeddings": null, "beta_fast": null, "mscale": null})");
            }),
            "");
}

TEST(ModelConfig, NamesTheKeyOfAWrongType) {
  for (const std::string more :
       {R"("attention_bias": 1)", R"("sliding_window": "all")", R"("rope_scaling": true)",
        R"("mlp_only_layers": 3)", R"("attention_dropout": false)"}) {
    const std::string key = more.substr(1, more.find('"', 1) - 1);
    try {
      parsed(more);
      ADD_FAILURE() << more;
    } catch (const IoError& error) {
      EXPECT_NE(std::string(error.what()).find("\"" + key + "\""), std::string::npos) << error.what();
    }
  }
}

TEST(ModelConfig, ListsEverythingThatIsWrongAtOnce) {
  const std::string text = refusal([] {
    ModelConfig::from(
        Document::parse(R"({"model_type": "qwen3_moe", "num_experts": 4, "frobnicate": 1})", "test"));
  });
  for (const char* part : {"frobnicate", "key vocab_size is missing", "key hidden_size is missing",
                           "key moe_intermediate_size is missing"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " not in: " << text;
}

TEST(ModelConfig, NamesTheFileItRefuses) {
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "config.json", R"({"model_type": "t5"})");
  const std::string text = refusal([&] { ModelConfig::read(folder.path()); });
  EXPECT_NE(text.find((folder / "config.json").string()), std::string::npos) << text;
}

TEST(ConfigViolations, GiveTheArithmetic) {
  using Edit = std::function<void(ModelConfig&)>;
  const struct {
    Edit edit;
    std::string expected;
  } cases[] = {
      {[](ModelConfig& c) { c.vocab_size = 0; }, "vocab_size = 0 must lie between"},
      {[](ModelConfig& c) { c.hidden_size = -8; }, "hidden_size = -8"},
      {[](ModelConfig& c) { c.num_hidden_layers = 0; }, "num_hidden_layers = 0"},
      {[](ModelConfig& c) { c.num_key_value_heads = 3; }, "num_key_value_heads = 3 does not divide"},
      {[](ModelConfig& c) { c.num_key_value_heads = 0; }, "num_key_value_heads = 0"},
      {[](ModelConfig& c) { c.head_dim = 15; }, "head_dim = 15 must be even"},
      {[](ModelConfig& c) { c.num_experts_per_tok = 9; },
       "num_experts_per_tok = 9 must lie between 1 and num_experts = 8"},
      {[](ModelConfig& c) { c.num_experts_per_tok = 0; }, "num_experts_per_tok = 0"},
      {[](ModelConfig& c) { c.moe_intermediate_size = 0; }, "moe_intermediate_size = 0"},
      {[](ModelConfig& c) { c.model_type = "mixtral", c.moe_intermediate_size = 0; },
       "intermediate_size = 0 must lie between"},
      {[](ModelConfig& c) { c.model_type = "mixtral", c.num_experts_per_tok = 9; },
       "must lie between 1 and num_local_experts = 8"},
      {[](ModelConfig& c) { c.topk_group = 2; }, "topk_group = 2 must lie between 1 and 1"},
      {[](ModelConfig& c) { c.mlp_only_layers = {4}; }, "mlp_only_layers names layer 4"},
      {[](ModelConfig& c) { c.mlp_only_layers = {-1}; }, "mlp_only_layers names layer -1"},
      {[](ModelConfig& c) { c.decoder_sparse_step = 0; }, "decoder_sparse_step = 0"},
      {[](ModelConfig& c) { c.num_experts = 0, c.intermediate_size = 0; }, "intermediate_size = 0"},
      {[](ModelConfig& c) { c.rms_norm_eps = 0; }, "rms_norm_eps"},
      {[](ModelConfig& c) { c.rope_theta = -1; }, "rope_theta"},
      {[](ModelConfig& c) { c.router_aux_loss_coef = -1; }, "router_aux_loss_coef"},
      {[](ModelConfig& c) { c.hidden_size = c.vocab_size = 1 << 24, c.num_experts = 1 << 16; }, "1e15"},
  };
  for (const auto& c : cases) {
    ModelConfig config;
    c.edit(config);
    const std::vector<std::string> found = config_violations(config);
    ASSERT_EQ(found.size(), 1u) << c.expected;
    EXPECT_NE(found.front().find(c.expected), std::string::npos) << found.front();
  }
  EXPECT_TRUE(config_violations(ModelConfig()).empty());
}

TEST(ModelConfig, IsSparseByStepAndByList) {
  ModelConfig config;
  config.num_hidden_layers = 6;
  config.decoder_sparse_step = 2;
  config.mlp_only_layers = {3};
  std::vector<Index> sparse;
  for (Index layer = 0; layer < 6; ++layer)
    if (config.is_sparse(layer)) sparse.push_back(layer);
  EXPECT_EQ(sparse, (std::vector<Index>{1, 5}));
  config.mlp_only_layers = {1, 3, 5};
  EXPECT_FALSE(config.has_experts());
  config.num_experts = 0;
  EXPECT_FALSE(config.is_sparse(1));
}

TEST(ConfigViolations, NameAScalingThatHasNoAngles) {
  ModelConfig config;
  config.rope_scaling = LinearScaling{.factor = 0};
  const std::vector<std::string> violations = config_violations(config);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_NE(violations.front().find("rope_scaling"), std::string::npos) << violations.front();
}

TEST(ModelConfig, YarnStretchesByTheLengthsInRopeScalingAndByItsFactorInRopeParameters) {
  const auto factor_of = [](const std::string& key) {
    ModelConfig config;
    Document document = config.to_document();
    document.erase("rope_scaling");
    document.erase("rope_parameters");
    Document rope;
    rope.set("rope_type", std::string("yarn"));
    rope.set("factor", 4.0);
    rope.set("original_max_position_embeddings", Index{16384});
    document.set(key, rope);
    return std::get<YarnScaling>(ModelConfig::from(document).rope_scaling).factor;
  };
  EXPECT_EQ(factor_of("rope_scaling"), 4);
  EXPECT_EQ(factor_of("rope_parameters"), 4);
}

}  // namespace
}  // namespace moeloom
