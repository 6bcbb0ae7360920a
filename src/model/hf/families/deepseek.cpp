// Mixtures of experts with DeepSeek's router.
#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

/// One wide MLP in place of n_shared_experts.
const SharedExpertRule kSharedExperts = {
    .width_key = "n_shared_experts", .counts_experts = true, .name = "shared_experts"};
const Family kDeepseekV3 = {
    .model_type = "deepseek_v3",
    .architecture = "DeepseekV3ForCausalLM",
    .latent_attention = true,
    .bias = kAttentionBias,
    .rope = {.pairs = RopePairs::kInterleavedToHalves},
    .moe = MoeRule{.experts_key = "n_routed_experts",
                   .sparse = SparseRule::kAfterFirst,
                   .router = kSigmoidRouter,
                   .topk_norm_fallback = true,
                   .groups = GroupRule{},
                   .scaling = 2.5,
                   .corrected = true,
                   .aux_loss_fallback = std::nullopt,
                   .shared = kSharedExperts},
    .max_position_embeddings = 4096,
    .further_layers = true,
    .fixed = {kSigmoid, kNoAuxTopk, kNoAuxLoss, kNoRouterLogits, kEveryLayer},
    .without_effect = {"pretraining_tp", "ep_size", "aux_loss_alpha", "seq_aux"},
};

/// DeepSeek-V3 by another name.
Family kimi_k2() {
  Family row = kDeepseekV3;
  row.model_type = "kimi_k2";
  row.in_both_versions = false;
  return row;
}

const Family kDeepseekV2 = {
    .model_type = "deepseek_v2",
    .architecture = "DeepseekV2ForCausalLM",
    .latent_attention = true,
    .bias = kAttentionBias,
    .rope = {.pairs = RopePairs::kInterleaved, .yarn_scales_scores = false},
    .mlp_bias_key = "mlp_bias",
    .moe = MoeRule{.experts_key = "n_routed_experts",
                   .sparse = SparseRule::kAfterFirst,
                   .router = {.group_worth = GroupWorth::kBest},
                   .topk_norm = TopkNorm::kNever,
                   .first_dense = 0,
                   .groups = GroupRule{.groups = 1, .kept = 1, .by_method = true},
                   .scaling = 1.0,
                   .aux_loss_fallback = std::nullopt,
                   .shared = SharedExpertRule{.width_key = "n_shared_experts",
                                              .counts_experts = true,
                                              .fallback = 2,
                                              .name = "shared_experts"}},
    .max_position_embeddings = 2048,
    .fixed = {kSoftmax,
              kNoAuxLoss,
              kNoRouterLogits,
              kEveryLayer,
              {"rope_interleave", true, "pairs of neighbours turn in this family"}},
    .without_effect = {"pretraining_tp", "ep_size", "aux_loss_alpha", "seq_aux"},
};

const Family kGlm4Moe = {
    .model_type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .qk_norm = QkNorm::kPerHead,
    .qk_norm_key = false,
    .bias = {.key = "attention_bias", .of_output = false},
    .rope = {.partial = 0.5},
    .rms_norm_eps = 1e-5,
    .moe = MoeRule{.experts_key = "n_routed_experts",
                   .sparse = SparseRule::kAfterFirst,
                   .router = kSigmoidRouter,
                   .topk_norm_fallback = true,
                   .first_dense = 1,
                   .groups = GroupRule{.groups = 1, .kept = 1},
                   .scaling = 1.0,
                   .corrected = true,
                   .aux_loss_fallback = std::nullopt,
                   .shared = kSharedExperts},
    .num_key_value_heads = 8,
    .max_position_embeddings = 131072,
    .further_layers = true,
    .fixed = {kSigmoid, kNoAuxTopk, kNoAuxLoss, kNoRouterLogits},
};

const Family kDots1 = {
    .model_type = "dots1",
    .architecture = "Dots1ForCausalLM",
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .window = WindowRule::kFromLayer,
    .moe = MoeRule{.experts_key = "n_routed_experts",
                   .sparse = SparseRule::kAfterFirst,
                   .router = kSigmoidRouter,
                   .first_dense = 0,
                   .groups = GroupRule{.groups = 1, .kept = 1},
                   .scaling = 1.0,
                   .corrected = true,
                   .aux_loss_fallback = std::nullopt,
                   .shared = kSharedExperts},
    .num_key_value_heads = 32,
    .max_position_embeddings = 2048,
    .fixed = {kSigmoid, kNoAuxTopk, kNoAuxLoss, kNoRouterLogits, kEveryLayer},
    .without_effect = {"pretraining_tp"},
};

}  // namespace

std::vector<Family> deepseek_families() {
  return {kDeepseekV2, kDeepseekV3, kDots1, kGlm4Moe, kimi_k2()};
}

}  // namespace moeloom
