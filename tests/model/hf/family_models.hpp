// A small model of every family, from the keys that its config.json must have.
#pragma once

#include "model/hf/family.hpp"
#include "moeloom/model/hf/config.hpp"

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
  if (type == "minimax_m2")
    return R"(, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2)";
  if (type == "hunyuan_v1_moe") return R"(, "num_key_value_heads": 2, "num_experts": 4, "moe_topk": 2)";
  if (type == "lfm2_moe")
    return R"(, "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
      "layer_types": ["conv", "full_attention", "conv", "conv"])";
  if (type == "qwen2_moe" || type == "qwen3_next" || type.starts_with("qwen3_5_moe"))
    return R"(, "num_key_value_heads": 2, "num_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 8, "shared_expert_intermediate_size": 20)";
  const bool sparse = type.find("moe") != std::string::npos;
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

}  // namespace moeloom::testing
