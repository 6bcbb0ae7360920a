#include "model/hf/family.hpp"

#include "base/text.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/kernels/registry.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "hf/family_models.hpp"
#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::family_model;
using testing::model;

template <typename Read>
std::string refusal_of(const Read& read) {
  try {
    read();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string refusal(const std::string& type, const std::string& more) {
  return refusal_of([&] { model(type, more); });
}

TEST(Families, EachHasOneRow) {
  std::set<std::string> types;
  for (const Family& family : families()) {
    EXPECT_TRUE(types.insert(family.model_type).second) << family.model_type;
    EXPECT_EQ(find_family(family.model_type), &family);
    const std::vector<std::string> known = split(known_families(), ',');
    const bool listed = std::ranges::any_of(
        known, [&](const std::string& name) { return trimmed(name) == family.model_type; });
    EXPECT_EQ(listed, family.refusal.empty()) << family.model_type;
  }
  EXPECT_EQ(find_family("t5"), nullptr);
}

TEST(Families, ReadTheirKeysAndGoBackToTheSameFileForBothVersions) {
  for (const Family& family : families()) {
    if (!family.refusal.empty()) continue;
    const ModelConfig config = family_model(family);
    EXPECT_EQ(config.model_type, family.model_type);
    Document expected = config.source;
    write_for_both_versions(config, expected);
    expected.set("dtype", "float32");
    EXPECT_EQ(config.to_document().dump(), expected.dump());
    EXPECT_EQ(config.has_experts(), family.moe.has_value()) << family.model_type;
    EXPECT_GT(config.total_parameters(), 0);
  }
}

TEST(Families, WithStacksOfColumnsReadMxfp4AndWriteNone) {
  const ModelConfig config = model("gpt_oss", R"("quantization_config": {"quant_method": "mxfp4"})");
  EXPECT_EQ(config.stored.as, StoredAs::kMxfp4);
  EXPECT_FALSE(config.to_document(DType::kBF16).has("quantization_config"));
  EXPECT_TRUE(config.updated_source().has("quantization_config"));  // which goes with a copy of the tensors
  EXPECT_NE(refusal("qwen3_moe", R"("quantization_config": {"quant_method": "mxfp4"})")
                .find("known: fp8, compressed-tensors;"),
            std::string::npos);
}

TEST(Families, DeepseekV2TakesGroupsByItsMethod) {
  const auto router_of = [](const std::string& keys) {
    return model("deepseek_v2", keys).layer(0).moe->router;
  };
  EXPECT_EQ(router_of(R"("n_group": 4, "topk_group": 2)").num_groups, 1);
  EXPECT_EQ(router_of(R"("n_group": 4, "topk_group": 2, "topk_method": "group_limited_greedy")").num_groups,
            4);
  EXPECT_NE(refusal("deepseek_v2", R"("topk_method": "noaux_tc")").find("known: greedy"), std::string::npos);
}

TEST(Families, RefuseWhatHfReadsNoOtherWay) {
  const struct {
    std::string type, keys, expected;
  } cases[] = {
      {"gpt_oss", R"("hidden_act": "gelu")", "hidden_act = \"gelu\" must be \"silu\""},
      {"gpt_oss", R"("sliding_window": null)", "no sliding_window is in force"},
      {"deepseek_v2", R"("rope_interleave": false)", "rope_interleave = false must be true"},
      {"ernie4_5_moe", R"("moe_layer_end_index": -2)", "moe_layer_end_index = -2"},
      {"granitemoe", R"("attention_multiplier": 0)", "attention_multiplier must be above 0"},
      {"granitemoe", R"("logits_scaling": 0)", "logits_scaling"},
  };
  for (const auto& c : cases)
    EXPECT_NE(refusal(c.type, c.keys).find(c.expected), std::string::npos)
        << c.keys << refusal(c.type, c.keys);
}

TEST(Families, ThatAreKnownButDoNotRunSayWhy) {
  EXPECT_NE(refusal("gemma3n_text", "").find("AltUp"), std::string::npos);
}

TEST(Families, RefuseTheKeysOfOthers) {
  const struct {
    std::string type, more, expected;
  } cases[] = {
      {"llama", R"("sliding_window": 8)", "sliding_window"},
      {"llama", R"("num_experts": 8)", "num_experts"},
      {"qwen3", R"("mlp_bias": true)", "mlp_bias"},
      {"mixtral", R"("router_jitter_noise": 0.1)", "router_jitter_noise = 0.1 must be 0"},
      {"olmoe", R"("clip_qkv": 8.0)", "clip_qkv is set"},
      {"phi3", R"("resid_pdrop": 0.1)", "resid_pdrop = 0.1"},
      {"phi3", R"("rope_scaling": {"type": "linear", "factor": 2})", "rope_type = \"linear\""},
      {"gemma3_text", R"("final_logit_softcapping": 30.0)", "final_logit_softcapping is set"},
      {"gemma3_text", R"("use_bidirectional_attention": true)", "use_bidirectional_attention = true"},
      {"deepseek_v3", R"("scoring_func": "softmax")", "scoring_func = \"softmax\""},
      {"deepseek_v3", R"("num_key_value_heads": 2)", "num_key_value_heads = 2 must be"},
      {"deepseek_v3", R"("qk_head_dim": 20)", "qk_head_dim = 20 must be qk_nope_head_dim + qk_rope_head_dim"},
      {"deepseek_v3", R"("n_group": 3)", "n_group = 3 does not divide"},
      {"deepseek_v3", R"("n_group": 16, "topk_group": 8)", "n_group = 16 leaves groups of one expert"},
      {"deepseek_v3", R"("n_group": 2, "topk_group": 3)", "topk_group = 3 must lie between 1 and 2"},
      {"deepseek_v3", R"("router_aux_loss_coef": 0.001)",
       "router_aux_loss_coef = 0.001 must be 0: a sigmoid"},
      {"deepseek_v3", R"("output_router_logits": true)", "output_router_logits = true must be false"},
      {"qwen3_vl_moe_text", R"("norm_topk_prob": false)", "norm_topk_prob = false must be true"},
      {"qwen3",
       R"("layer_types": ["full_attention", "full_attention", "sliding_attention", "full_attention"])",
       "no sliding_window is in force"},
      {"qwen3_next", R"("layer_types": [])", "layer_types has 0 entries"},
  };
  for (const auto& c : cases) {
    const std::string text = refusal(c.type, c.more);
    EXPECT_NE(text.find(c.expected), std::string::npos) << c.type << " " << c.more << " gave: " << text;
  }
}

/// 0 where a layer mixes tokens without attention.
TEST(Families, SayWhichLayersHaveAttention) {
  using Layers = std::vector<Index>;
  EXPECT_EQ(model("qwen3_next").attention_layers, (Layers{0, 0, 0, 1}));
  EXPECT_EQ(model("qwen3_5_moe_text", R"("full_attention_interval": 2)").attention_layers,
            (Layers{0, 1, 0, 1}));
  const ModelConfig stated = model(
      "qwen3_next",
      R"("layer_types": ["full_attention", "linear_attention", "linear_attention", "linear_attention"])");
  EXPECT_EQ(stated.attention_layers, (Layers{1, 0, 0, 0}));
  EXPECT_NE(stated.layer(0).attention(), nullptr);
  EXPECT_EQ(std::get<DeltaNetSpec>(stated.layer(1).mixer).prefix, "model.layers.1.linear_attn.");
  const ModelConfig lfm2 = model("lfm2_moe", R"("conv_L_cache": 5, "conv_bias": true)");
  EXPECT_EQ(lfm2.attention_layers, (Layers{0, 1, 0, 0}));
  EXPECT_EQ(std::get<ShortConvSpec>(lfm2.layer(3).mixer).taps, 5);
  EXPECT_TRUE(std::get<ShortConvSpec>(lfm2.layer(3).mixer).bias);
  EXPECT_TRUE(lfm2.tie_word_embeddings);
  EXPECT_FALSE(model("lfm2_moe", R"("tie_embedding": false)").tie_word_embeddings);
}

TEST(Families, RefuseMixersThatCannotBe) {
  const struct {
    std::string type, keys, expected;
  } cases[] = {
      {"qwen3_next", R"("layer_types": ["linear_attention"])", "layer_types has 1 entries"},
      {"qwen3_next", R"("layer_types": ["conv", "conv", "conv", "conv"])", "layer_types holds \"conv\""},
      {"qwen3_next", R"("full_attention_interval": 0)", "full_attention_interval = 0 must be at least 1"},
      {"qwen3_next", R"("linear_num_key_heads": 3)", "linear_num_key_heads = 3 does not divide"},
      {"qwen3_next", R"("linear_conv_kernel_dim": 0)", "linear_conv_kernel_dim = 0"},
      {"qwen3_5_moe_text", R"("norm_topk_prob": false)", "norm_topk_prob = false must be true"},
      {"qwen3_5_moe_text", R"("attn_output_gate": false)", "attn_output_gate = false must be true"},
      {"lfm2_moe", R"("conv_L_cache": 0)", "conv_L_cache = 0"},
      {"lfm2_moe", R"("linear_num_key_heads": 3)", "linear_num_key_heads"},
      {"lfm2_moe", R"("moe_layers": [2, 2])", "moe_layers"},
      {"deepseek_v3", R"("num_nextn_predict_layers": -5)", "num_nextn_predict_layers = -5"},
      {"deepseek_v3", R"("num_nextn_predict_layers": 65)", "num_nextn_predict_layers = 65"},
      {"qwen3_next", R"("linear_num_key_heads": 65536, "linear_num_value_heads": 65536)",
       "num_hidden_layers = 4 times linear_num_key_heads = 65536"},
  };
  for (const auto& c : cases)
    EXPECT_NE(refusal(c.type, c.keys).find(c.expected), std::string::npos)
        << c.keys << " gave: " << refusal(c.type, c.keys);
  Document without_types = model("lfm2_moe").source;
  without_types.erase("layer_types");
  EXPECT_THROW(ModelConfig::from(without_types), ConfigError);
  without_types.set("layer_types", std::vector<std::string>{});
  EXPECT_THROW(ModelConfig::from(without_types), ConfigError);
  Document lists = model("lfm2_moe").source;
  lists.set("num_experts", std::vector<Index>{4, 4, 4, 4});
  EXPECT_THROW(ModelConfig::from(lists), IoError) << "only HunYuan says it of each layer";
}

/// A file of 300 bytes may not ask for any amount of memory, whatever its layers are made of.
TEST(Families, BoundWhatTheirMixersMayTake) {
  ModelConfig lfm2 = model("lfm2_moe");
  lfm2.hidden_size = Index{1} << 24;
  lfm2.num_hidden_layers = 4096;
  lfm2.attention_layers.assign(4096, 0);
  const auto violations = config_violations(lfm2);
  EXPECT_TRUE(std::ranges::any_of(violations, [](const std::string& text) {
    return text.find("more than 1e15 parameters") != std::string::npos;
  }));
  ModelConfig gated = model("qwen3_next");
  gated.num_attention_heads = gated.num_key_value_heads = 65536;
  EXPECT_TRUE(std::ranges::any_of(config_violations(gated), [](const std::string& text) {
    return text.find("times num_attention_heads = 65536") != std::string::npos;
  }));
}

/// As a dump of transformers 4.51 has it.
TEST(Families, Llama4TakesANumberForATruthValueOfItsTemperature) {
  EXPECT_GT(model("llama4_text", R"("attn_temperature_tuning": 4)").floor_scale, 0);
  EXPECT_EQ(model("llama4_text", R"("attn_temperature_tuning": 0)").floor_scale, 0);
  EXPECT_EQ(model("llama4_text", R"("attn_temperature_tuning": false)").floor_scale, 0);
  EXPECT_NE(refusal("lfm2_moe", R"("num_dense_layers": -1)").find("num_dense_layers = -1"),
            std::string::npos);
  EXPECT_NE(refusal("lfm2_moe", R"("norm_eps": -1)").find("norm_eps"), std::string::npos);
}

TEST(Families, MayHaveLayersThatPredictFurtherTokens) {
  EXPECT_EQ(model("deepseek_v3").num_nextn_predict_layers, 0);
  EXPECT_EQ(model("deepseek_v3", R"("num_nextn_predict_layers": null)").num_nextn_predict_layers, 0);
  EXPECT_EQ(model("glm4_moe", R"("num_nextn_predict_layers": 2)").num_nextn_predict_layers, 2);
}

TEST(Families, HunyuanSaysNumbersOfLayersInLists) {
  const ModelConfig config = model("hunyuan_v1_moe", R"("rope_scaling": {"type": "dynamic", "alpha": 1000.0,
    "factor": 1.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0},
    "moe_intermediate_size": [56, 56, 56, 56], "num_shared_expert": [1, 1, 1, 1])");
  EXPECT_EQ(std::get<NtkAlphaScaling>(config.rope_scaling).alpha, 1000);
  EXPECT_EQ(config.moe_intermediate_size, 56);
  EXPECT_EQ(config.layer(0).moe->shared->width, 56);
  EXPECT_TRUE(config.layer(0).attention()->qk_norm_after_rope);
  Document lists = config.source;
  lists.set("moe_topk", std::vector<Index>{3, 3, 3, 3});
  EXPECT_EQ(ModelConfig::from(lists).num_experts_per_tok, 3);
  lists.set("moe_topk", std::vector<Index>{3, 3});
  EXPECT_THROW(ModelConfig::from(lists), ConfigError);
  lists.set("moe_topk", std::vector<Index>{3, 3, 2, 3});
  EXPECT_EQ(ModelConfig::from(lists).layer(2).moe->router.top_k, 2);
  EXPECT_EQ(ModelConfig::from(lists).layer(3).moe->router.top_k, 3);
  lists.set("num_experts", std::vector<Index>{4, 4, 3, 4});
  EXPECT_THROW(ModelConfig::from(lists), ConfigError);
  EXPECT_NE(refusal("hunyuan_v1_moe", R"("rope_scaling": {"type": "dynamic", "factor": 2.0})").find("alpha"),
            std::string::npos);
  EXPECT_NE(refusal("hunyuan_v1_moe", R"("use_cla": true)").find("use_cla = true must be false"),
            std::string::npos);
}

/// Transformers writes numbers of layers as wide as the largest; released files speak of full layers.
TEST(Families, Gemma4SaysHeadsOfLayersByTheirNumbers) {
  const std::string by_number = R"("per_layer_config": {
      "01": {"head_dim": 16, "num_key_value_heads": 1}, "3": {"head_dim": 16, "num_key_value_heads": 1}})";
  const ModelConfig config = model("gemma4_text", by_number);
  EXPECT_EQ(config.layer(1).attention()->head_dim, 16);
  EXPECT_EQ(config.layer(1).attention()->kv_heads, 1);
  EXPECT_EQ(config.layer(3).attention()->kv_heads, 1);
  EXPECT_NE(refusal("gemma4_text", R"("per_layer_config": {"1": {"head_dim": 16}})")
                .find("layer 3 reads the keys of layer 1, whose heads differ"),
            std::string::npos);
  EXPECT_EQ(config.layer(2).attention()->head_dim, 8);
  EXPECT_NE(
      refusal("gemma4_text", R"("per_layer_config": {"7": {"head_dim": 16}})").find("per_layer_config.7"),
      std::string::npos);
  EXPECT_NE(
      refusal("gemma4_text", R"("per_layer_config": {"1": {"rank": 16}})").find("per_layer_config.1.rank"),
      std::string::npos);
  const ModelConfig released = model("gemma4_text", R"("num_global_key_value_heads": 1)");
  EXPECT_EQ(released.layer(1).attention()->head_dim, 16);
  EXPECT_EQ(released.layer(1).attention()->kv_heads, 1);
}

TEST(Families, OfTransformers5RefuseWhatTheirPartsCannotBe) {
  const struct {
    std::string type, keys, expected;
  } cases[] = {
      {"hunyuan_v1_moe", R"("moe_topk": [2, -1, 2, 2])", "moe_topk = -1 must lie between 1"},
      {"cohere2_moe", R"("num_shared_experts": 2305843009213693952)", "num_shared_experts must be 0 or more"},
      {"cohere2_moe", R"("first_k_dense_replace": -7)", "dense layers must not be negative"},
      {"mimo_v2_flash", R"("v_head_dim": 0)", "v_head_dim = 0 must be at least 1"},
      {"mimo_v2_flash", R"("swa_head_dim": 16)", "swa_head_dim = 16 must be 12"},
      {"mimo_v2_flash", R"("attention_value_scale": 1e300)", "attention_value_scale must be finite"},
      {"mellum", R"("rope_theta": 123)", "rope_theta is not read in this family"},
      {"mellum", R"("rope_parameters": {"rope_theta": 1e6})", "must have an object for full_attention"},
      {"laguna", R"("moe_layer_freq": [1, 1, 1, 1])", "unknown keys: moe_layer_freq"},
      {"exaone_moe", R"("sliding_window_pattern": "LLXG")", "must be letters L and G"},
      {"gemma4_text", R"("hidden_size_per_layer_input": -1)", "hidden_size_per_layer_input = -1"},
  };
  for (const auto& c : cases) {
    Document document = model(c.type).source;
    const Document more = Document::parse("{" + c.keys + "}", c.type);
    for (const std::string& key : more.keys()) document.erase(key);
    const std::string text = document.dump();
    const std::string found = refusal_of([&] {
      ModelConfig::from(Document::parse(text.substr(0, text.rfind('}')) + ", " + c.keys + "}", c.type));
    });
    EXPECT_NE(found.find(c.expected), std::string::npos) << c.type << ' ' << c.keys << " gave: " << found;
  }
  Document dense = model("gemma4_text").source;
  dense.erase("enable_moe_block");
  EXPECT_THROW(ModelConfig::from(dense), ConfigError) << "absent it is false";
  Document many = model("granitemoe_swa").source;
  std::vector<double> thetas;
  for (int layer = 0; layer < 100; ++layer) thetas.push_back(1000 + layer);
  many.set("num_hidden_layers", 100);
  many.set("layer_rope_theta", thetas);
  EXPECT_THROW(ModelConfig::from(many), ConfigError) << "each theta is a table";
}

/// EXAONE's released files say the pattern in letters; 5.15 goes by layer_types where both are there.
TEST(Families, ExaoneSaysWindowsInLetters) {
  const auto windows_of = [](const std::string& keys) { return model("exaone_moe", keys).windows; };
  EXPECT_EQ(windows_of(R"("sliding_window": 5, "sliding_window_pattern": "LLG")"),
            (std::vector<Index>{5, 5, 0, 5}));
  EXPECT_EQ(windows_of(R"("sliding_window": 5, "sliding_window_pattern": "LLG", "layer_types":
      ["full_attention", "full_attention", "sliding_attention", "full_attention"])"),
            (std::vector<Index>{0, 0, 5, 0}));
}

TEST(Families, MinimaxTurnsAsMuchOfAHeadAsItsWidthSays) {
  EXPECT_EQ(model("minimax_m2", R"("head_dim": 16, "rotary_dim": 8)").rotary_dim(), 8);
  EXPECT_EQ(model("minimax_m2", R"("head_dim": 16)").rotary_dim(), 16);
  EXPECT_EQ(model("minimax_m2",
                  R"("head_dim": 16, "rope_parameters": {"rope_theta": 5e6, "partial_rotary_factor": 0.5})")
                .rotary_dim(),
            8);
  const RouterSettings router = model("minimax_m2").layer(0).moe->router;
  EXPECT_EQ(router.divide.by, DivideBy::kSum);
  EXPECT_TRUE(model("minimax_m2").layer(0).moe->correction_bias);
  EXPECT_NE(refusal("minimax_m2", R"("rotary_dim": 200)").find("rotary_dim = 200"), std::string::npos);
  EXPECT_NE(refusal("minimax_m2", R"("scoring_func": "softmax")").find("scoring_func"), std::string::npos);
}

TEST(Families, SayWhichLayersSeeAWindow) {
  using Windows = std::vector<Index>;
  const struct {
    std::string type, more;
    Windows expected;
  } cases[] = {
      {"mixtral", R"("sliding_window": 8)", {8, 8, 8, 8}},
      {"mixtral", "", {}},
      {"phi3", R"("sliding_window": 8)", {8, 8, 8, 8}},
      {"qwen3_moe", R"("sliding_window": 8)", {}},
      {"qwen3_moe", R"("sliding_window": 8, "use_sliding_window": true)", {8, 8, 8, 8}},
      {"qwen2_moe", R"("use_sliding_window": true)", {4096, 0, 4096, 0}},
      {"qwen2_moe", R"("use_sliding_window": true, "max_window_layers": 1)", {4096, 0, 0, 0}},
      {"qwen2_moe",
       R"("use_sliding_window": true, "layer_types": ["full_attention", "full_attention",
        "sliding_attention", "sliding_attention"])",
       {0, 0, 4096, 4096}},
      {"qwen3", R"("sliding_window": 8, "use_sliding_window": true, "max_window_layers": 3)", {0, 0, 0, 8}},
      {"qwen3", R"("sliding_window": 8, "use_sliding_window": true)", {}},
      {"gemma3_text", R"("sliding_window": 8, "sliding_window_pattern": 2)", {8, 0, 8, 0}},
      {"gemma3_text",
       R"("sliding_window": 8, "layer_types": ["full_attention", "sliding_attention", "full_attention",
          "full_attention"])",
       {0, 8, 0, 0}},
  };
  for (const auto& c : cases) {
    const ModelConfig config = model(c.type, c.more);
    EXPECT_EQ(config.windows, c.expected) << c.type << " " << c.more;
    for (Index layer = 0; layer < 4; ++layer)
      EXPECT_EQ(config.layer(layer).attention()->window,
                c.expected.empty() ? 0 : c.expected[static_cast<std::size_t>(layer)]);
  }
}

TEST(Families, SayWhichProjectionsHaveABias) {
  const struct {
    std::string type, more;
    bool of_qkv, of_output;
  } cases[] = {
      {"llama", "", false, false},
      {"llama", R"("attention_bias": true)", true, true},
      {"qwen3_moe", R"("attention_bias": true)", true, true},
      {"glm4", "", true, false},
      {"glm4", R"("attention_bias": false)", false, false},
      {"qwen2_moe", "", true, false},
      {"qwen2_moe", R"("qkv_bias": false)", false, false},
      {"mixtral", "", false, false},
      {"deepseek_v3", R"("attention_bias": true)", true, true},
  };
  for (const auto& c : cases) {
    const AttentionSpec spec = *model(c.type, c.more).layer(0).attention();
    EXPECT_EQ(spec.qkv_bias, c.of_qkv) << c.type << c.more;
    EXPECT_EQ(spec.output_bias, c.of_output) << c.type << c.more;
  }
  EXPECT_TRUE(model("llama", R"("mlp_bias": true)").layer(0).mlp->bias);
}

TEST(Families, GemmaHasTwoRopesFourNormsAndScaledEmbeddings) {
  const ModelConfig config = model("gemma3_text", R"("sliding_window_pattern": 2, "query_pre_attn_scalar": 64,
                              "rope_scaling": {"rope_type": "linear", "factor": 8.0})");
  const std::vector<RopeSettings> ropes = config.ropes();
  ASSERT_EQ(ropes.size(), 2u);
  EXPECT_EQ(ropes[0].theta, 1e6);
  EXPECT_EQ(std::get<LinearScaling>(ropes[0].scaling).factor, 8.0);
  EXPECT_EQ(ropes[1].theta, 1e4);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(ropes[1].scaling));
  EXPECT_EQ(config.layer(0).attention()->rope, 1);
  EXPECT_EQ(config.layer(1).attention()->rope, 0);
  EXPECT_FLOAT_EQ(config.layer(0).attention()->scale, 0.125f);
  EXPECT_FLOAT_EQ(config.embedding_scale(), std::sqrt(32.0f));
  const LayerSpec layer = config.layer(2);
  EXPECT_EQ(layer.mixer_norm->settings.weight_offset, 1.0f);
  EXPECT_EQ(layer.mixer_output_norm->name, "model.layers.2.post_attention_layernorm.weight");
  EXPECT_EQ(layer.feed_forward_norm->name, "model.layers.2.pre_feedforward_layernorm.weight");
  EXPECT_EQ(layer.feed_forward_output_norm->name, "model.layers.2.post_feedforward_layernorm.weight");
  EXPECT_EQ(layer.mlp->activation.act, Activation::kGeluTanh);
  EXPECT_TRUE(config.tie_word_embeddings);
}

TEST(Families, DeepseekHasLatentsGroupsAndDenseLayersFirst) {
  const ModelConfig config = model("deepseek_v3", R"("first_k_dense_replace": 1, "q_lora_rank": null,
    "n_group": 4, "topk_group": 2, "n_shared_experts": 2, "rms_norm_eps": 1e-5)");
  EXPECT_TRUE(config.layer(0).mlp.has_value());
  const LayerSpec layer = config.layer(1);
  const AttentionSpec& attention = *layer.attention();
  EXPECT_EQ(attention.head_dim, 24);
  EXPECT_EQ(attention.value_dim, 12);
  EXPECT_EQ(attention.latent->q_rank, 0);
  EXPECT_EQ(attention.latent->norm.eps, 1e-6f);  // HF's default, whatever rms_norm_eps says
  EXPECT_EQ(layer.mixer_norm->settings.eps, 1e-5f);
  EXPECT_FLOAT_EQ(attention.scale, 1 / std::sqrt(24.0f));
  EXPECT_EQ(config.ropes()[0].rotary_dim, 8);
  EXPECT_EQ(config.ropes()[0].pairs, RopePairs::kInterleavedToHalves);
  const RouterSettings& router = layer.moe->router;
  EXPECT_EQ(router.score, RouterScore::kSigmoid);
  EXPECT_EQ(router.num_groups, 4);
  EXPECT_EQ(router.topk_group, 2);
  EXPECT_EQ(router.scaling_factor, 2.5f);
  EXPECT_TRUE(layer.moe->correction_bias);
  EXPECT_EQ(layer.moe->shared->width, 16);
  EXPECT_EQ(config.router_aux_loss_coef, 0.0);
}

TEST(Families, DeepseekScalesItsScoresWithYarn) {
  const ModelConfig config = model("deepseek_v3", R"("max_position_embeddings": 256, "rope_interleave": false,
    "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 32, "mscale": 1.0,
                     "mscale_all_dim": 0.8, "beta_fast": 32, "beta_slow": 1})");
  const double mscale = 0.1 * 0.8 * std::log(4.0) + 1;
  EXPECT_FLOAT_EQ(config.layer(0).attention()->scale, static_cast<float>(mscale * mscale / std::sqrt(24.0)));
  const YarnScaling yarn = std::get<YarnScaling>(config.ropes()[0].scaling);
  EXPECT_EQ(yarn.factor, 4.0);  // as stated; the two lengths would give 8
  EXPECT_EQ(yarn.mscale, 1.0);
  EXPECT_EQ(config.ropes()[0].pairs, RopePairs::kHalfSplit);
  EXPECT_TRUE(config.remarks.empty());
}

TEST(Families, DeepseekV2SaysThatItScalesNoScoresAsTransformersFiveDoes) {
  const ModelConfig config = model("deepseek_v2", R"("rope_scaling": {"type": "yarn", "factor": 4,
    "original_max_position_embeddings": 32, "mscale": 0.7, "mscale_all_dim": 0.7})");
  EXPECT_FLOAT_EQ(config.layer(0).attention()->scale,
                  static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))));
  ASSERT_EQ(config.remarks.size(), 1U);
  EXPECT_NE(config.remarks[0].find("5.15 scales them by 1.2"), std::string::npos) << config.remarks[0];
}

TEST(Families, ReadTheScalingsOfBothSpellings) {
  const ModelConfig llama = model("llama", R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64})");
  const Llama3Scaling llama3 = std::get<Llama3Scaling>(llama.ropes()[0].scaling);
  EXPECT_EQ(llama3.high_freq_factor, 4.0);
  EXPECT_EQ(llama3.original_max_position_embeddings, 64.0);
  const ModelConfig gemma = model("gemma3_text", R"("rope_parameters": {
    "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5},
    "sliding_attention": {"rope_type": "default", "rope_theta": 2e4}})");
  EXPECT_EQ(gemma.ropes()[0].theta, 5e5);
  EXPECT_EQ(gemma.ropes()[1].theta, 2e4);
  const ModelConfig glm =
      model("glm4", R"("head_dim": 10, "rope_parameters": {"partial_rotary_factor": 0.4})");
  EXPECT_EQ(glm.ropes()[0].rotary_dim, 4);
  EXPECT_EQ(glm.ropes()[0].pairs, RopePairs::kInterleaved);
  const ModelConfig vl = model("qwen3_vl_moe_text", R"("rope_scaling": {"rope_type": "default",
    "mrope_section": [2, 1, 1], "mrope_interleaved": true})");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(vl.ropes()[0].scaling));
}

TEST(Families, Phi3StretchesByTheRatioOfItsLengths) {
  const ModelConfig phi = model("phi3", R"("max_position_embeddings": 128,
    "original_max_position_embeddings": 32, "rope_scaling": {"type": "su",
    "short_factor": [1, 1, 1, 1], "long_factor": [1, 2, 3, 4]})");
  const LongRopeScaling scaling = std::get<LongRopeScaling>(phi.ropes()[0].scaling);
  EXPECT_EQ(scaling.factor, 4.0);
  EXPECT_EQ(scaling.original_max_position_embeddings, 32);
  EXPECT_EQ(scaling.long_factor[3], 4.0);
  EXPECT_NE(
      refusal("phi3", R"("rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [1]})")
          .find("each of the 4 pairs"),
      std::string::npos);
}

TEST(Families, PaddingIsCountedAsTorchCounts) {
  const auto padding = [](const std::string& type, const std::string& value) {
    const std::string text = "{\"model_type\": \"" + type + "\"" + R"(, "vocab_size": 96, "hidden_size": 32,
      "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 56)" +
                             (value.empty() ? "" : ", \"pad_token_id\": " + value) + "}";
    return ModelConfig::from(Document::parse(text, "test")).pad_token_id;
  };
  EXPECT_EQ(padding("llama", ""), std::nullopt);
  EXPECT_EQ(padding("llama", "7"), 7);
  EXPECT_EQ(padding("llama", "-1"), 95);
  EXPECT_EQ(padding("gemma3_text", ""), 0);
  EXPECT_EQ(padding("gemma3_text", "null"), std::nullopt);
  EXPECT_THROW(padding("glm4", ""), ConfigError);  // 151329 is no row
}

TEST(Families, ThatDoNotRunSayWhyNotAndNoOtherHasARefusal) {
  for (const Family& family : families()) EXPECT_EQ(family.architecture.empty(), !family.refusal.empty());
}
}  // namespace
}  // namespace moeloom
