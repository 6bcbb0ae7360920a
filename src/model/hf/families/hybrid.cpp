// Mixtures of experts some of whose layers mix tokens without attention.
#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

/// Of Qwen3-Next and Qwen3.5, whose norms multiply by 1 + w.
const SharedExpertRule kGatedShared = {.width_key = "shared_expert_intermediate_size", .gated = true};

const GateRule kGateWithQuery = {.gate = {.with_query = true}};

const Family kQwen3Next = {
    .model_type = "qwen3_next",
    .architecture = "Qwen3NextForCausalLM",
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .gate = kGateWithQuery,
    .other_mixer = OtherMixer::kDeltaNet,
    .rope = {.partial = 0.25},
    .norm_offset = 1,
    .moe = MoeRule{.sparse = SparseRule::kStepAndList, .topk_norm_fallback = true, .shared = kGatedShared},
    .head_dim = 256,
    .num_key_value_heads = 2,
    .beside = {"mtp.*"},
    .fixed = {kNoWindow, kNoWindowFlag},
    .without_effect = {"max_window_layers"},
};

const Family kQwen35MoeText = {
    .model_type = "qwen3_5_moe_text",
    .architecture = "Qwen3_5MoeForCausalLM",
    .in_both_versions = false,
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .gate = kGateWithQuery,
    .other_mixer = OtherMixer::kDeltaNet,
    .delta_net = DeltaNetLayout::kByPart,
    .rope = {.partial = 0.25, .multimodal = true},
    .norm_offset = 1,
    .moe = MoeRule{.topk_norm = TopkNorm::kAlways, .shared = kGatedShared, .layout = ExpertLayout::kStacked},
    .head_dim = 256,
    .num_key_value_heads = 2,
    .beside = {"mtp.*"},
    .fp32 = {"*.linear_attn.A_log", "*.linear_attn.norm.weight"},  // as released
    .fixed = {kNoWindow,
              kNoWindowFlag,
              kAlwaysNormed,
              {"attn_output_gate", true, "attention of this family has an output gate"}},
    .without_effect = {"mamba_ssm_dtype", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
                       "mlp_only_layers", "decoder_sparse_step", "moe_layer_freq", "output_gate_type"},
};

const Family kLfm2Moe = {
    .model_type = "lfm2_moe",
    .architecture = "Lfm2MoeForCausalLM",
    .in_both_versions = false,
    .attention = {.output = "out_proj", .query_norm = "q_layernorm", .key_norm = "k_layernorm"},
    .qk_norm = QkNorm::kPerHead,
    .other_mixer = OtherMixer::kShortConv,
    .rope = {.theta = 1e6},
    .eps_key = "norm_eps",
    .rms_norm_eps = 1e-5,
    .norms = {.mixer = "operator_norm", .feed_forward = "ffn_norm", .last = "embedding_norm"},
    .moe = MoeRule{.sparse = SparseRule::kAfterFirst,
                   .router = {.score = RouterScore::kSigmoid, .divide = {DivideBy::kSumPlus, 1e-6f}},
                   .topk_norm_fallback = true,
                   .first_dense_key = "num_dense_layers",
                   .first_dense = 2,
                   .scaling = 1.0,
                   .corrected = true,
                   .corrected_key = "use_expert_bias",
                   .aux_loss_fallback = std::nullopt,
                   .block = "feed_forward",
                   .experts = {.gate = "w1", .up = "w3", .down = "w2"},
                   .router_names = {.correction_bias = "expert_bias"}},
    .num_key_value_heads = 8,
    .max_position_embeddings = 128000,
    .tie_word_embeddings = true,
    .tie_key = "tie_embedding",
    .pad_token_id = 0,
    .fixed = {kNoAuxLoss, kNoRouterLogits},
    // Of dense LFM2, which HF's model does not read.
    .without_effect = {"full_attn_idxs", "block_dim", "block_ff_dim", "block_multiple_of", "block_norm_eps",
                       "block_use_swiglu", "block_use_xavier_init", "conv_dim", "conv_dim_out",
                       "conv_use_xavier_init", "num_heads", "theta", "use_pos_enc"},
};

}  // namespace

std::vector<Family> hybrid_families() {
  return {
      kQwen3Next, kQwen35MoeText,
      inside(
          kQwen35MoeText,
          {"qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration", {"model.language_model.", "lm_head.weight"}},
          {"text_config"}, kVisionKeys, {"model.visual.*"}),
      kLfm2Moe};
}

}  // namespace moeloom
