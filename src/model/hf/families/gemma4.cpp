// Gemma 4 with experts, alone and in the model that sees and hears.
#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

/// An MLP beside the experts, and layers that borrow keys and values.
const Family kGemma4Text = {
    .model_type = "gemma4_text",
    .architecture = "Gemma4ForCausalLM",
    .in_both_versions = false,
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .window = WindowRule::kPattern,
    .windows = {.size = 512, .pattern_key = "", .last_full = true},
    .heads_by_layer = HeadsByLayer::kLayerConfig,
    .value_norm = true,
    .lends_keys = true,
    .rope = {.theta = 1e6, .partial = 0.25, .windows = WindowRopeRule{}, .proportional = true},
    .score_scale = 1.0,
    .norms = {.mixer_output = "post_attention_layernorm",
              .feed_forward = "pre_feedforward_layernorm",
              .feed_forward_output = "post_feedforward_layernorm"},
    .side_by_side = true,
    .scaled_embeddings = true,
    .logit_cap = true,
    .activation_key = "hidden_activation",
    .activation = "gelu_pytorch_tanh",
    .moe = MoeRule{.top_k_key = "top_k_experts",
                   .enabled_key = "enable_moe_block",
                   .topk_norm = TopkNorm::kAlways,
                   .router_norm = true,
                   .expert_scale = true,
                   .aux_loss_fallback = std::nullopt,
                   .block = "",
                   .router_names = {.weight = "router.proj.weight"},
                   .only_stacked = true,
                   .layout = ExpertLayout::kStacked},
    .head_dim = 256,
    .num_key_value_heads = 4,
    .max_position_embeddings = 131072,
    .tie_word_embeddings = true,
    .pad_token_id = 0,
    .fixed = {{"use_bidirectional_attention", "vision", "attention here is causal"}},
    .absent = {{"intermediate_size", 9216}},
};

const std::vector<std::string> kGemma4OuterKeys = {"vision_config",      "audio_config",
                                                   "image_token_id",     "video_token_id",
                                                   "audio_token_id",     "boi_token_id",
                                                   "eoi_token_id",       "boa_token_id",
                                                   "eoa_token_id",       "eoa_token_index",
                                                   "boi_token_index",    "eoi_token_index",
                                                   "image_token_index",  "vision_soft_tokens_per_image",
                                                   "mm_tokens_per_image"};

Family gemma4() {
  return inside(kGemma4Text,
                {"gemma4", "Gemma4ForConditionalGeneration", {"model.language_model.", "lm_head.weight"}},
                {"text_config"}, kGemma4OuterKeys,
                {"model.vision_tower.*", "model.audio_tower.*", "model.embed_vision.*", "model.embed_audio.*",
                 "model.multi_modal_projector.*"});
}

}  // namespace

std::vector<Family> gemma4_families() {
  return {gemma4(), kGemma4Text};
}

}  // namespace moeloom
