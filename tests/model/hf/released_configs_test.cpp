// Configs as the released models of new families have them: every key is read or known, and the parameters
// are as many as their makers say.
#include "moeloom/model/hf/config.hpp"

#include <gtest/gtest.h>

namespace moeloom {
namespace {

struct Released {
  const char* name;
  const char* config;
  Index parameters;
};

const Released kReleased[] = {
    {"Qwen3.5-35B-A3B, of which HF counts 35 B with its vision tower",
     R"({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "image_token_id": 248056, "model_type":
        "qwen3_5_moe", "text_config": {"attention_bias": false, "attention_dropout": 0.0,
        "attn_output_gate": true, "dtype": "bfloat16", "eos_token_id": 248044, "full_attention_interval": 4,
        "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_5_moe_text",
        "moe_intermediate_size": 512, "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": false,
        "num_attention_heads": 16, "num_experts": 256, "num_experts_per_tok": 8, "num_hidden_layers": 40,
        "num_key_value_heads": 2, "output_router_logits": false, "pad_token_id": null,
        "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_parameters": {"mrope_interleaved": true,
        "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25, "rope_theta": 10000000, "rope_type":
        "default"}, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512,
        "tie_word_embeddings": false, "use_cache": true, "vocab_size": 248320}, "tie_word_embeddings":
        false, "transformers_version": "4.57.0.dev0", "video_token_id": 248057, "vision_end_token_id":
        248054, "vision_start_token_id": 248053})",
     34660610688},
    {"MiniMax-M2, 229 B",
     R"({"architectures": ["MiniMaxM2ForCausalLM"], "attention_dropout": 0.0, "attn_type_list": [1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], "auto_map":
        {"AutoConfig": "x"}, "bos_token_id": null, "eos_token_id": null, "head_dim": 128, "hidden_act":
        "silu", "hidden_size": 3072, "initializer_range": 0.02, "intermediate_size": 1536,
        "layernorm_full_attention_beta": 1.0, "layernorm_linear_attention_beta": 1.0, "layernorm_mlp_beta":
        1.0, "max_position_embeddings": 196608, "mlp_intermediate_size": 8192, "model_type": "minimax_m2",
        "mtp_transformer_layers": 1, "num_attention_heads": 48, "num_experts_per_tok": 8,
        "num_hidden_layers": 62, "num_key_value_heads": 8, "num_local_experts": 256, "num_mtp_modules": 3,
        "output_router_logits": false, "qk_norm_type": "per_layer", "quantization_config":
        {"activation_scheme": "dynamic", "fmt": "float8_e4m3fn", "quant_method": "fp8", "weight_block_size":
        [128, 128], "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]},
        "rms_norm_eps": 1e-06, "rope_theta": 5000000, "rotary_dim": 64, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
        "scoring_func": "sigmoid", "shared_intermediate_size": 0, "shared_moe_mode": "sigmoid",
        "sliding_window": null, "tie_word_embeddings": false, "transformers_version": "4.57.1", "use_cache":
        true, "use_mtp": true, "use_qk_norm": true, "use_routing_bias": true, "vocab_size": 200064})",
     228689748992},
    {"Llama 4 Scout, 109 B with its vision tower",
     R"({"architectures": ["Llama4ForConditionalGeneration"], "boi_token_index": 200080, "eoi_token_index":
        200081, "image_token_index": 200092, "model_type": "llama4", "text_config":
        {"_attn_implementation_autoset": true, "attention_bias": false, "attention_chunk_size": 8192,
        "attention_dropout": 0.0, "bos_token_id": 200000, "eos_token_id": [200001, 200007, 200008],
        "for_llm_compressor": false, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
        "initializer_range": 0.02, "interleave_moe_layer_step": 1, "intermediate_size": 8192,
        "intermediate_size_mlp": 16384, "max_position_embeddings": 10485760, "model_type": "llama4_text",
        "no_rope_layers": [], "num_attention_heads": 40, "num_experts_per_tok": 1, "num_hidden_layers": 48,
        "num_key_value_heads": 8, "num_local_experts": 16, "output_router_logits": false, "pad_token_id":
        200018, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 16.0, "high_freq_factor": 1.0,
        "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "rope_theta": 500000.0, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0, "torch_dtype":
        "bfloat16", "use_cache": true, "use_qk_norm": true, "vocab_size": 202048}, "torch_dtype":
        "bfloat16", "transformers_version": "4.51.0.dev0"})",
     107769861120},
    {"LFM2-8B-A1B, 8.3 B",
     R"({"architectures": ["Lfm2MoeForCausalLM"], "bos_token_id": 1, "conv_L_cache": 3, "conv_bias": false,
        "dtype": "bfloat16", "eos_token_id": 7, "hidden_size": 2048, "initializer_range": 0.02,
        "intermediate_size": 7168, "max_position_embeddings": 128000, "model_type": "lfm2_moe",
        "moe_intermediate_size": 1792, "norm_eps": 1e-05, "norm_topk_prob": true, "num_attention_heads": 32,
        "num_dense_layers": 2, "num_experts": 32, "num_experts_per_tok": 4, "num_hidden_layers": 24,
        "num_key_value_heads": 8, "pad_token_id": 0, "rope_theta": 1000000.0, "routed_scaling_factor": 1.0,
        "transformers_version": "4.57.0.dev0", "use_cache": true, "use_expert_bias": true, "vocab_size":
        65536, "layer_types": ["conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention",
        "conv", "conv", "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv", "conv",
        "conv", "full_attention", "conv", "conv", "conv", "full_attention", "conv"]})",
     8339929856},
    {"Qwen3-Next-80B-A3B, 80 B",
     R"({"architectures": ["Qwen3NextForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
        "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "full_attention_interval":
        4, "head_dim": 256, "hidden_act": "silu", "hidden_size": 2048, "initializer_range": 0.02,
        "intermediate_size": 5120, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
        "max_position_embeddings": 262144, "mlp_only_layers": [], "model_type": "qwen3_next",
        "moe_intermediate_size": 512, "norm_topk_prob": true, "num_attention_heads": 16, "num_experts": 512,
        "num_experts_per_tok": 10, "num_hidden_layers": 48, "num_key_value_heads": 2,
        "output_router_logits": false, "partial_rotary_factor": 0.25, "rms_norm_eps": 1e-06, "rope_scaling":
        null, "rope_theta": 10000000, "router_aux_loss_coef": 0.001, "shared_expert_intermediate_size": 512,
        "tie_word_embeddings": false, "torch_dtype": "bfloat16", "transformers_version": "4.57.0.dev0",
        "use_cache": true, "use_sliding_window": false, "vocab_size": 151936})",
     79674391296},
};

TEST(ReleasedConfigs, AreReadAndHaveTheParametersOfTheModel) {
  for (const Released& model : kReleased) {
    SCOPED_TRACE(model.name);
    EXPECT_EQ(ModelConfig::from(Document::parse(model.config, model.name)).total_parameters(),
              model.parameters);
  }
}

}  // namespace
}  // namespace moeloom
