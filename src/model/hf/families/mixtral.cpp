// Mixtral and other mixtures of experts.
#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

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

}  // namespace

std::vector<Family> mixtral_families() {
  return {kMixtral, kOlmoe};
}

}  // namespace moeloom
