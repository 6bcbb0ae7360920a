// Small models with everything that distinguishes one checkpoint layout from another, and stores of them on
// any mesh.
#pragma once

#include "model/parts/parameters.hpp"
#include "moeloom/comm/mesh.hpp"
#include "moeloom/model/hf/config.hpp"

namespace moeloom::testing {

/// Of bytes, quick to train: layers sparse, dense, sparse.
inline ModelConfig tiny_config() {
  ModelConfig config;
  config.vocab_size = 256;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.moe_intermediate_size = 20;
  config.num_hidden_layers = 3;
  config.mlp_only_layers = {1};
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 8;
  config.num_experts = 4;
  config.num_experts_per_tok = 2;
  config.initializer_range = 0.1;
  return config;
}

/// Of the family with latent attention and a sigmoid router: layers dense, sparse, sparse.
inline ModelConfig deepseek_config() {
  ModelConfig config = tiny_config();
  config.model_type = "deepseek_v3";
  config.mlp_only_layers = {};
  config.first_k_dense_replace = 1;
  config.num_key_value_heads = config.num_attention_heads;
  config.q_lora_rank = 6;
  config.kv_lora_rank = 10;
  config.qk_nope_head_dim = 4;
  config.qk_rope_head_dim = 4;
  config.v_head_dim = 6;
  config.shared_expert_intermediate_size = 20;
  return config;
}

/// One layer of attention between two of a short convolution (lfm2_moe) or a gated delta net (qwen3_next).
inline ModelConfig hybrid_config(const std::string& family) {
  ModelConfig config = tiny_config();
  config.model_type = family;
  config.attention_layers = {0, 1, 0};
  config.conv_taps = 3;
  if (family == "lfm2_moe") return config;
  config.shared_expert_intermediate_size = 20;
  config.linear_num_key_heads = 2;
  config.linear_num_value_heads = 4;
  config.linear_key_head_dim = config.linear_value_head_dim = 8;
  return config;
}

/// Of gpt_oss: biases on router and experts, clamped activations, sinks.
inline ModelConfig biased_config() {
  ModelConfig config = tiny_config();
  config.model_type = "gpt_oss";
  config.mlp_only_layers = {};
  config.attention_bias = true;
  return config;
}

/// tiny_config() with experts that few rank counts divide and an embedding of more than 2^16 elements,
/// narrow.
inline ModelConfig small_config() {
  ModelConfig config = tiny_config();
  config.vocab_size = 9001;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.moe_intermediate_size = 6;
  config.head_dim = 4;
  config.num_experts = 5;
  config.initializer_range = ModelConfig{}.initializer_range;
  return config;
}

inline ExpertRange experts_here(const ModelConfig& config, const Mesh& mesh) {
  return mesh.experts(config.num_experts);
}

/// Every (dp, ep) of `world` ranks, whether or not the experts divide, in both orders of the axes.
inline std::vector<MeshShape> all_meshes(Index world) {
  std::vector<MeshShape> shapes;
  for (Index ep = 1; ep <= world; ++ep) {
    if (world % ep != 0) continue;
    shapes.push_back({world / ep, ep, {"dp", "ep"}});
    shapes.push_back({world / ep, ep, {"ep", "dp"}});
  }
  return shapes;
}

}  // namespace moeloom::testing
