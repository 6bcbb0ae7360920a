// A small model of every family, from the keys that its config.json must have.
#pragma once

#include "model/hf/family.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace moeloom::testing {

inline const std::string kSizes = R"("vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 4,
  "num_attention_heads": 4, "intermediate_size": 56, "pad_token_id": null)";

/// What a family asks for beyond kSizes.
inline std::string needs(const std::string& type) {
  if (type == "gpt_oss")
    return R"(, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
      "rope_scaling": null)";
  if (type == "mixtral" || type == "phimoe" || type == "granitemoe")
    return R"(, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2)";
  if (type == "llama4_text" || type == "llama4")
    return R"(, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 1,
      "intermediate_size_mlp": 48)";
  if (type == "ernie4_5_moe") return R"(, "moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 8)";
  if (type == "glm4_moe" || type == "dots1")
    return R"(, "num_key_value_heads": 2, "n_routed_experts": 16, "num_experts_per_tok": 2,
      "moe_intermediate_size": 8)";
  if (type == "olmoe" || type == "flex_olmo") return R"(, "num_experts": 4, "num_experts_per_tok": 2)";
  if (type == "deepseek_v3" || type == "deepseek_v2" || type == "kimi_k2")
    return R"(, "n_routed_experts": 16, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
      "kv_lora_rank": 12, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
      "v_head_dim": 12)";
  if (type == "glm4_moe_lite" || type == "axk1")
    return R"(, "num_key_value_heads": 4, "n_routed_experts": 16, "num_experts_per_tok": 2,
      "moe_intermediate_size": 8, "q_lora_rank": 24, "kv_lora_rank": 12, "qk_nope_head_dim": 16,
      "qk_rope_head_dim": 8, "v_head_dim": 12)";
  if (type == "solar_open" || type == "mimo_v2_flash")
    return R"(, "num_key_value_heads": 2, "n_routed_experts": 16, "num_experts_per_tok": 2,
      "moe_intermediate_size": 8, "head_dim": 12)" +
           std::string(type == "mimo_v2_flash" ? R"(, "v_head_dim": 8)" : "");
  if (type == "mellum")
    return R"(, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 8, "head_dim": 8)";
  if (type == "granitemoe_swa")
    return R"(, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
      "layer_rope_theta": [0, 10000, 500000, 10000], "shared_intermediate_size": 20)";
  if (type == "laguna")
    return R"(, "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8,
      "moe_intermediate_size": 8, "shared_expert_intermediate_size": 20,
      "num_attention_heads_per_layer": [4, 2, 6, 4])";
  if (type == "cohere2_moe")
    return R"(, "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "head_dim": 8,
      "num_shared_experts": 2)";
  if (type == "gemma4_text" || type == "gemma4")
    return R"(, "num_key_value_heads": 2, "num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 8,
      "enable_moe_block": true, "head_dim": 8, "global_head_dim": 16, "attention_k_eq_v": true,
      "num_kv_shared_layers": 1, "hidden_size_per_layer_input": 6, "vocab_size_per_layer_input": 96,
      "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"])";
  if (type == "minimax_m2")
    return R"(, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2)";
  if (type == "hunyuan_v1_moe") return R"(, "num_key_value_heads": 2, "num_experts": 4, "moe_topk": 2)";
  if (type == "lfm2_moe")
    return R"(, "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
      "layer_types": ["conv", "full_attention", "conv", "conv"])";
  if (type == "qwen2_moe" || type == "qwen3_next" || type.starts_with("qwen3_5_moe"))
    return R"(, "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 8, "shared_expert_intermediate_size": 20)";
  const bool sparse = type.find("moe") != std::string::npos || type == "hy_v3";
  return std::string(R"(, "num_key_value_heads": 2)") +
         (sparse ? R"(, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8)" : "");
}

inline ModelConfig model(const std::string& type, const std::string& more = "") {
  const std::string text =
      "{\"model_type\": \"" + type + "\", " + kSizes + needs(type) + (more.empty() ? "" : ", " + more) + "}";
  return ModelConfig::from(Document::parse(text, type));
}

/// The same keys where a model of several parts has them.
inline ModelConfig nested(const std::string& type, const std::vector<std::string>& path,
                          const std::string& inner_type) {
  std::string text = "{\"model_type\": \"" + inner_type + "\", " + kSizes + needs(type) + "}";
  for (auto key = path.rbegin(); key != path.rend(); ++key) {
    const bool outermost = key + 1 == path.rend();
    text = "{" + (outermost ? "\"model_type\": \"" + type + "\", " : std::string()) + "\"" + *key +
           "\": " + text + ", \"vision_config\": {\"depth\": 2}}";
  }
  return ModelConfig::from(Document::parse(text, type));
}

inline ModelConfig family_model(const Family& family) {
  if (!family.text_config) return model(family.model_type);
  return nested(family.model_type, family.text_config->path, family.text_config->model_type);
}

/// Sizes that a file may leave out are those of a large model.
inline void make_small(ModelConfig& config) {
  if (!config.family().latent_attention) config.head_dim = std::min<Index>(config.head_dim, 16);
  config.q_lora_rank = std::min<Index>(config.q_lora_rank, 24);
  config.shared_expert_intermediate_size = std::min<Index>(config.shared_expert_intermediate_size, 20);
  config.linear_num_key_heads = std::min<Index>(config.linear_num_key_heads, 2);
  config.linear_num_value_heads = std::min<Index>(config.linear_num_value_heads, 4);
  config.linear_key_head_dim = std::min<Index>(config.linear_key_head_dim, 8);
  config.linear_value_head_dim = std::min<Index>(config.linear_value_head_dim, 6);
}

/// Of every family that runs, those within models of several parts left out: weights large enough that every
/// layer changes the logits, windows and chunks that short sequences go beyond. On more ranks than two, which
/// take turns on few processors, a few that have most parts between them.
inline std::vector<ModelConfig> loud_family_models(Index ranks) {
  const std::vector<std::string> of_most_parts = {"gemma4_text", "laguna", "qwen3_5_moe_text"};
  std::vector<ModelConfig> models;
  for (const Family& family : families()) {
    if (!family.refusal.empty() || family.text_config) continue;
    if (ranks > 2 && std::ranges::count(of_most_parts, family.model_type) == 0) continue;
    ModelConfig config = family_model(family);
    config.initializer_range = 0.2;
    for (Index& window : config.windows) window = std::min<Index>(window, 5);
    for (Index& chunk : config.chunks) chunk = std::min<Index>(chunk, 6);
    make_small(config);
    models.push_back(config);
  }
  return models;
}

}  // namespace moeloom::testing
