// Mixtral and other mixtures of experts.
#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

const std::string kNoDropout = "training here has no dropout";

const Family kMixtral = {
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .window = WindowRule::kKey,
    .rope = {.theta = 1e6},
    .rms_norm_eps = 1e-5,
    .moe = MoeRule{.experts_key = "num_local_experts",
                   .width_key = "intermediate_size",
                   .topk_norm = TopkNorm::kAlways,
                   .block = "block_sparse_moe",
                   .experts = {.gate = "w1", .up = "w3", .down = "w2"}},
    .num_key_value_heads = 8,
    .max_position_embeddings = 131072,
    .fixed = {kNoJitter, kNoAttentionBias},
};

const Family kOlmoe = {
    .model_type = "olmoe",
    .architecture = "OlmoeForCausalLM",
    .qk_norm = QkNorm::kWholeWidth,
    .bias = kAttentionBias,
    .rms_norm_eps = 1e-5,
    .moe = MoeRule{.width_key = "intermediate_size", .aux_loss_fallback = 0.01},
    .max_position_embeddings = 4096,
    .pad_token_id = 1,
    .fixed = {kNoClip},
};

/// OLMoE with norms behind the blocks and none before them.
const Family kFlexOlmo = {
    .model_type = "flex_olmo",
    .architecture = "FlexOlmoForCausalLM",
    .qk_norm = QkNorm::kWholeWidth,
    .bias = kAttentionBias,
    .rope = {.theta = 5e5},
    .norms = {.mixer = "",
              .mixer_output = "post_attention_layernorm",
              .feed_forward = "",
              .feed_forward_output = "post_feedforward_layernorm"},
    .moe = MoeRule{.width_key = "intermediate_size", .aux_loss_fallback = 0.01},
    .max_position_embeddings = 4096,
    .pad_token_id = 100277,
};

const Family kGraniteMoe = {
    .model_type = "granitemoe",
    .architecture = "GraniteMoeForCausalLM",
    .bias = kAttentionBias,
    .multipliers = true,
    .moe = MoeRule{.experts_key = "num_local_experts",
                   .width_key = "intermediate_size",
                   .router = {.choose_by = ChooseBy::kLogit,
                              .weigh_by = WeighBy::kSoftmaxOfChosen,
                              .divide = {DivideBy::kNothing}},
                   .topk_norm = TopkNorm::kAlways,
                   .block = "block_sparse_moe",
                   .stack = {.gate_up = "input_linear.weight", .down = "output_linear.weight"},
                   .router_names = {.weight = "router.layer.weight"},
                   .in_memory = {{"router.layer.weight", "router.weight"},
                                 {"input_linear.weight", "experts.gate_up_proj"},
                                 {"output_linear.weight", "experts.down_proj"}},
                   .layout = ExpertLayout::kStacked},
    .max_position_embeddings = 2048,
    .fixed = {{"position_embedding_type", "rope", "positions are embedded by rotation here", true}},
};

const Family kErnie45Moe = {
    .model_type = "ernie4_5_moe",
    .architecture = "Ernie4_5_MoeForCausalLM",
    .bias = {.key = "use_bias"},
    .rope = {.pairs = RopePairs::kInterleaved, .theta = 5e5},
    .rms_norm_eps = 1e-5,
    .mlp_bias_key = "use_bias",
    .head_bias_key = "use_bias",
    .moe = MoeRule{.experts_key = "moe_num_experts",
                   .top_k_key = "moe_k",
                   .sparse = SparseRule::kInterval,
                   .router = {.divide = {DivideBy::kSumAtLeast}, .balance_by = BalanceBy::kScore},
                   .topk_norm = TopkNorm::kAlways,
                   .least_sum_key = "moe_norm_min",
                   .corrected = true,
                   .shared = SharedExpertRule{.width_key = "moe_num_shared_experts",
                                              .counts_experts = true,
                                              .fallback = 2,
                                              .may_be_none = true,
                                              .name = "shared_experts"},
                   .router_names = {.correction_bias = "moe_statics.e_score_correction_bias",
                                    .correction_bias_is_row = true},
                   .in_memory = {{"moe_statics", "gate.moe_statics"}}},
    .num_key_value_heads = 4,
    .max_position_embeddings = 131072,
    .tie_word_embeddings = true,
    .pad_token_id = 0,
    .beside = {"model.mtp_*"},
    .fp32 = {"*.mlp.gate.weight"},
    // Of training and of layers that predict further tokens.
    .without_effect = {"moe_capacity", "moe_gate", "moe_use_aux_free", "num_nextn_predict_layers"},
};

const Family kPhimoe = {
    .model_type = "phimoe",
    .architecture = "PhimoeForCausalLM",
    .bias = kAttentionBias,
    .window = WindowRule::kKey,
    .rope = {.theta = 1e6, .longrope = true, .mscales = true},
    .norm_kind = NormKind::kLayer,
    .rms_norm_eps = 1e-5,
    .head_bias_key = "lm_head_bias",
    .moe = MoeRule{.experts_key = "num_local_experts",
                   .width_key = "intermediate_size",
                   .router = {.choose_by = ChooseBy::kLogit,
                              .weigh_by = WeighBy::kSoftmaxOfNear,
                              .divide = {DivideBy::kNothing}},
                   .topk_norm = TopkNorm::kAlways,
                   .block = "block_sparse_moe",
                   .experts = {.gate = "w1", .up = "w3", .down = "w2"},
                   .in_memory = {{"gate", "router"}}},
    .num_key_value_heads = 8,
    .max_position_embeddings = 131072,
    .fixed = {{"num_experts_per_tok", 2.0, "SparseMixer chooses two"}, {"hidden_dropout", 0.0, kNoDropout}},
    // Noise of training; this routes as in evaluation.
    .without_effect = {"input_jitter_noise"},
};

}  // namespace

std::vector<Family> mixtral_families() {
  return {kErnie45Moe, kFlexOlmo, kGraniteMoe, kMixtral, kOlmoe, kPhimoe};
}

}  // namespace moeloom
