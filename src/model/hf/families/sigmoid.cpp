// Families of transformers 5 whose routers take sigmoids and choose with a bias.
#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

const RouterRule kSigmoidRouter = {.score = RouterScore::kSigmoid, .divide = {DivideBy::kSumPlus, 1e-20f}};

SharedExpertRule shared_experts(const std::string& count, Index fallback = 1) {
  return {.width_key = count, .counts_experts = true, .fallback = fallback, .name = "shared_experts"};
}

const FixedKey kAlwaysSigmoid = {"moe_router_use_sigmoid", true, "the only scores of this family"};
const std::vector<FixedKey> kOnlySigmoid = {kSigmoid, kNoAuxTopk, kNoAuxLoss, kNoRouterLogits};

/// GLM-4.7-Flash.
const Family kGlm4MoeLite = {
    .model_type = "glm4_moe_lite",
    .architecture = "Glm4MoeLiteForCausalLM",
    .in_both_versions = false,
    .latent_attention = true,
    .bias = kAttentionBias,
    .rope = {.pairs = RopePairs::kInterleavedToHalves},
    .rms_norm_eps = 1e-5,
    .moe = MoeRule{.experts_key = "n_routed_experts",
                   .sparse = SparseRule::kTypes,
                   .router = kSigmoidRouter,
                   .topk_norm_fallback = true,
                   .first_dense_key = "",
                   .first_dense = 1,
                   .groups = GroupRule{.groups = 1, .kept = 1},
                   .scaling = 1.8,
                   .corrected = true,
                   .aux_loss_fallback = std::nullopt,
                   .shared = shared_experts("n_shared_experts")},
    .num_key_value_heads = 20,
    .max_position_embeddings = 202752,
    .further_layers = true,
    .fixed = kOnlySigmoid,
    .absent = {{"intermediate_size", 10240},
               {"moe_intermediate_size", 1536},
               {"n_routed_experts", 64},
               {"num_experts_per_tok", 4},
               {"q_lora_rank", 768},
               {"kv_lora_rank", 512},
               {"qk_nope_head_dim", 192},
               {"qk_rope_head_dim", 64},
               {"v_head_dim", 256}},
    .without_effect = {"first_k_dense_replace", "moe_layer_freq", "pretraining_tp", "ep_size"},
};

/// DeepSeek-V3 with a norm behind its experts.
const Family kAxk1 = {
    .model_type = "axk1",
    .architecture = "AXK1ForCausalLM",
    .in_both_versions = false,
    .latent_attention = true,
    .bias = kAttentionBias,
    .rope = {.pairs = RopePairs::kInterleavedToHalves},
    .norms = {.sparse_output = "post_mlp_layernorm"},
    .in_memory = {{"post_mlp_layernorm", "mlp.post_mlp_layernorm"}},
    .moe = MoeRule{.experts_key = "n_routed_experts",
                   .sparse = SparseRule::kAfterFirst,
                   .router = kSigmoidRouter,
                   .topk_norm_fallback = true,
                   .first_dense = 1,
                   .groups = GroupRule{},
                   .scaling = 2.5,
                   .corrected = true,
                   .aux_loss_fallback = std::nullopt,
                   .shared = shared_experts("n_shared_experts")},
    .num_key_value_heads = 64,
    .max_position_embeddings = 131072,
    .further_layers = true,
    .fixed = kOnlySigmoid,
    .absent = {{"intermediate_size", 18432},
               {"moe_intermediate_size", 2048},
               {"n_routed_experts", 192},
               {"num_experts_per_tok", 8},
               {"kv_lora_rank", 512},
               {"qk_nope_head_dim", 128},
               {"qk_rope_head_dim", 64},
               {"v_head_dim", 128}},
    .without_effect = {"moe_layer_freq", "pretraining_tp", "ep_size"},
};

const Family kExaoneMoe = {
    .model_type = "exaone_moe",
    .architecture = "ExaoneMoeForCausalLM",
    .in_both_versions = false,
    .qk_norm = QkNorm::kPerHead,
    .window = WindowRule::kPattern,
    .windows = {.pattern = 4},
    .rope = {.layers = RopeLayers::kWindows},
    .rms_norm_eps = 1e-5,
    .moe = MoeRule{.sparse = SparseRule::kTypes,
                   .router = kSigmoidRouter,
                   .topk_norm_fallback = true,
                   .first_dense = 1,
                   .groups = GroupRule{.groups = 1, .kept = 1},
                   .scaling = 2.5,
                   .corrected = true,
                   .aux_loss_fallback = std::nullopt,
                   .shared = shared_experts("num_shared_experts"),
                   .router_names = {.correction_bias = "e_score_correction_bias"},
                   .in_memory = {{"e_score_correction_bias", "gate.e_score_correction_bias"}}},
    .num_key_value_heads = 32,
    .pad_token_id = 0,
    .beside = {"mtp.*"},
    .fixed = {kSigmoid, kNoAuxTopk, kNoAuxLoss, kNoRouterLogits, kNoAttentionBias, kNoMlpBias},
    .absent = {{"intermediate_size", 16384},
               {"moe_intermediate_size", 1024},
               {"num_experts", 64},
               {"num_experts_per_tok", 8}},
    .without_effect = {"num_nextn_predict_layers", "mtp_share_layers", "mtp_loss_scaling_factor",
                       "first_last_k_dense_replace", "is_moe_layer"},
};

const Family kSolarOpen = {
    .model_type = "solar_open",
    .architecture = "SolarOpenForCausalLM",
    .in_both_versions = false,
    .bias = {.key = "attention_bias", .of_output = false},
    .rope = {.theta = 1e6},
    .rms_norm_eps = 1e-5,
    .moe = MoeRule{.experts_key = "n_routed_experts",
                   .router = kSigmoidRouter,
                   .topk_norm_fallback = true,
                   .groups = GroupRule{.groups = 1, .kept = 1},
                   .scaling = 1.0,
                   .corrected = true,
                   .aux_loss_fallback = std::nullopt,
                   .shared = shared_experts("n_shared_experts")},
    .head_dim = 128,
    .num_key_value_heads = 8,
    .max_position_embeddings = 131072,
    .fixed = kOnlySigmoid,
    .absent = {{"moe_intermediate_size", 1280}, {"n_routed_experts", 128}, {"num_experts_per_tok", 8}},
    .without_effect = {"first_k_dense_replace", "use_qk_norm"},
};

const Family kHyV3 = {
    .model_type = "hy_v3",
    .architecture = "HYV3ForCausalLM",
    .in_both_versions = false,
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .rope = {.theta = 11158840},
    .rms_norm_eps = 1e-5,
    .mlp_bias_key = "mlp_bias",
    .moe = MoeRule{.sparse = SparseRule::kTypes,
                   .router = kSigmoidRouter,
                   .topk_norm = TopkNorm::kAlways,
                   .first_dense_key = "",
                   .first_dense = 1,
                   .scaling = 2.826,
                   .scaling_key = "router_scaling_factor",
                   .corrected = true,
                   .aux_loss_fallback = std::nullopt,
                   .shared =
                       SharedExpertRule{
                           .width_key = "num_shared_experts", .counts_experts = true, .name = "shared_mlp"},
                   .biased_by_key = false,
                   .router_names = {.weight = "router.gate.weight", .correction_bias = "expert_bias"},
                   .in_memory = {{"router.gate", "gate"},
                                 {"expert_bias", "e_score_correction_bias"},
                                 {"shared_mlp", "shared_experts"}}},
    .head_dim = 128,
    .num_key_value_heads = 8,
    .max_position_embeddings = 131072,
    .further_layers = true,
    .fixed = {kAlwaysSigmoid,
              {"qk_norm", true, "q and k of this family are normed"},
              {"route_norm", true, "this family's router always divides by the sum"},
              {"moe_router_enable_expert_bias", true, "this family's router has a correction bias"}},
    .absent = {{"intermediate_size", 13312},
               {"moe_intermediate_size", 1536},
               {"num_experts", 192},
               {"num_experts_per_tok", 8}},
    // Of low precision, and of losses that HF's model does not have.
    .without_effect = {"enable_moe_fp32_combine", "output_router_logits", "first_k_dense_replace",
                       "enable_lm_head_fp32", "enable_attention_fp32_softmax"},
};

const Family kAfmoe = {
    .model_type = "afmoe",
    .architecture = "AfmoeForCausalLM",
    .in_both_versions = false,
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .window = WindowRule::kPattern,
    .windows = {.size = 1024, .pattern_key = "global_attn_every_n_layers", .pattern = 4},
    .gate = GateRule{.gate = {.function = GateFunction::kSigmoid}},
    .rope = {.layers = RopeLayers::kWindows},
    .rms_norm_eps = 1e-5,
    .norms = {.mixer_output = "post_attention_layernorm",
              .feed_forward = "pre_mlp_layernorm",
              .feed_forward_output = "post_mlp_layernorm"},
    .scaled_embeddings_key = "mup_enabled",
    .moe = MoeRule{.sparse = SparseRule::kAfterFirst,
                   .router = kSigmoidRouter,
                   .topk_norm = TopkNorm::kAlways,
                   .first_dense_key = "num_dense_layers",
                   .first_dense = 1,
                   .scaling = 1.0,
                   .scaling_key = "route_scale",
                   .corrected = true,
                   .aux_loss_fallback = std::nullopt,
                   .shared = SharedExpertRule{.width_key = "num_shared_experts",
                                              .counts_experts = true,
                                              .fallback = 2,
                                              .may_be_none = true,
                                              .name = "shared_experts"},
                   .router_names = {.weight = "router.gate.weight", .correction_bias = "expert_bias"}},
    .head_dim = 128,
    .max_position_embeddings = 131072,
    .absent = {{"intermediate_size", 6144},
               {"moe_intermediate_size", 1408},
               {"num_experts", 64},
               {"num_experts_per_tok", 6}},
    // HF's model reads none of them.
    .without_effect = {"output_router_logits", "route_norm", "score_func", "load_balance_coeff", "n_group",
                       "topk_group", "num_expert_groups", "num_limited_groups", "use_grouped_mm"},
};

}  // namespace

std::vector<Family> sigmoid_families() {
  return {kAfmoe, kAxk1, kExaoneMoe, kGlm4MoeLite, kHyV3, kSolarOpen};
}

}  // namespace moeloom
