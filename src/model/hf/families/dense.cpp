// Models without experts.
#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

const Family kQwen3 = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .upcycled = "qwen3_moe",
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .window = WindowRule::kLayerTypes,
    .head_dim = 128,
    .num_key_value_heads = 32,
};

const Family kLlama = {
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .upcycled = "mixtral",
    .bias = kAttentionBias,
    .mlp_bias_key = "mlp_bias",
    .max_position_embeddings = 2048,
    .without_effect = {"pretraining_tp"},
};

const Family kGlm4 = {
    .model_type = "glm4",
    .architecture = "Glm4ForCausalLM",
    .bias = {.key = "attention_bias", .fallback = true, .of_output = false},
    .rope = {.pairs = RopePairs::kInterleaved, .partial = 0.5},
    .rms_norm_eps = 1.5625e-7,
    .norms = {.mixer_output = "post_self_attn_layernorm", .feed_forward_output = "post_mlp_layernorm"},
    .fused_gate_up = true,
    .head_dim = 128,
    .num_key_value_heads = 2,
    .max_position_embeddings = 131072,
    .pad_token_id = 151329,
};

const Family kPhi3 = {
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .fused_qkv = true,
    .window = WindowRule::kKey,
    .rope = {.partial = 1.0, .longrope = true},
    .rms_norm_eps = 1e-5,
    .fused_gate_up = true,
    .max_position_embeddings = 4096,
    .pad_token_id = 32000,
    .fixed = {kNoResidualDropout, kNoEmbeddingDropout, kNoAttentionBias, kNoMlpBias, kNoHeadBias,
              kEveryAttention},
    .without_effect = {"interpolate_factor"},
};

const Family kGemma3Text = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .window = WindowRule::kPattern,
    .rope = {.theta = 1e6, .windows = WindowRopeRule{.theta_key = "rope_local_base_freq"}},
    .query_scalar = true,
    .norm_offset = 1,
    .norms = {.mixer_output = "post_attention_layernorm",
              .feed_forward = "pre_feedforward_layernorm",
              .feed_forward_output = "post_feedforward_layernorm"},
    .scaled_embeddings = true,
    .activation_key = "hidden_activation",
    .activation = "gelu_pytorch_tanh",
    .head_dim = 256,
    .num_key_value_heads = 4,
    .max_position_embeddings = 131072,
    .tie_word_embeddings = true,
    .pad_token_id = 0,
    .fixed = {kNoAttentionCap, kNoLogitCap, kCausal},
    .without_effect = {"cache_implementation"},
};

}  // namespace

std::vector<Family> dense_families() {
  return {kQwen3, kLlama, kGlm4, kPhi3, kGemma3Text};
}

}  // namespace moeloom
