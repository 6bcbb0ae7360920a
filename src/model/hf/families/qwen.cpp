// Qwen's mixtures of experts, also as the text towers of larger models.
#include "hf/families/rows.hpp"

namespace moeloom {
namespace {

const MoeRule kQwen3Experts = {.sparse = SparseRule::kStepAndList};

const Family kQwen2Moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .bias = {.key = "qkv_bias", .fallback = true, .of_output = false},
    .window = WindowRule::kEvenBelow,
    .moe = MoeRule{.sparse = SparseRule::kStepAndList,
                   .shared = SharedExpertRule{.width_key = "shared_expert_intermediate_size", .gated = true}},
    .num_key_value_heads = 16,
};

const Family kQwen3Moe = {
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .window = WindowRule::kFlag,
    .moe = kQwen3Experts,
    .num_key_value_heads = 4,
    .without_effect = {"max_window_layers"},
};

const Family kQwen3OmniMoeText = {
    .model_type = "qwen3_omni_moe_text",
    .architecture = "Qwen3OmniMoeThinkerForConditionalGeneration",
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .rope = {.theta = 1e6, .multimodal = true},
    .moe = MoeRule{.sparse = SparseRule::kStepAndList, .topk_norm_fallback = true},
    .num_key_value_heads = 4,
    .fixed = {kNoWindow, kNoWindowFlag},
};

const Family kQwen3VlMoeText = {
    .model_type = "qwen3_vl_moe_text",
    .architecture = "Qwen3VLMoeForConditionalGeneration",
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .rope = {.theta = 5e5, .multimodal = true},  // of 5.15; 4.57 has 5e6
    .moe = MoeRule{.sparse = SparseRule::kStepAndList,
                   .topk_norm = TopkNorm::kAlways,
                   .transposed = true,
                   .either_way = true,
                   .layout = ExpertLayout::kStackedTransposed},
    .num_key_value_heads = 16,
    .max_position_embeddings = 128000,
    .fixed = {kNoWindow, kNoWindowFlag, kAlwaysNormed},
};

const std::vector<std::string> kThinkerKeys = {
    "vision_config",           "audio_config",         "image_token_id",
    "video_token_id",          "audio_token_id",       "vision_start_token_id",
    "vision_end_token_id",     "audio_start_token_id", "audio_end_token_id",
    "position_id_per_seconds", "user_token_id",        "talker_config",
    "code2wav_config",         "enable_audio_output",  "im_start_token_id",
    "im_end_token_id",         "tts_pad_token_id",     "tts_bos_token_id",
    "tts_eos_token_id",        "system_token_id",      "assistant_token_id"};

}  // namespace

std::vector<Family> qwen_families() {
  return {
      kQwen2Moe,
      kQwen3Moe,
      kQwen3OmniMoeText,
      kQwen3VlMoeText,
      inside(kQwen3OmniMoeText, {"qwen3_omni_moe_thinker", "Qwen3OmniMoeThinkerForConditionalGeneration"},
             {"text_config"}, kThinkerKeys, {"audio_tower.*", "visual.*"}),
      inside(kQwen3OmniMoeText,
             {"qwen3_omni_moe",
              "Qwen3OmniMoeForConditionalGeneration",
              {"thinker.model.", "thinker.lm_head.weight"}},
             {"thinker_config", "text_config"}, kThinkerKeys,
             {"thinker.audio_tower.*", "thinker.visual.*", "talker.*", "code2wav.*"}),
      inside(
          kQwen3VlMoeText,
          {"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", {"model.language_model.", "lm_head.weight"}},
          {"text_config"}, kVisionKeys, {"model.visual.*"}),
  };
}

}  // namespace moeloom
