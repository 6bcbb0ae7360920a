// The table of families. Fallbacks are those of Hugging Face's config classes, 4.57.
#include "moeloom/model/hf/family.hpp"

#include <algorithm>

namespace moeloom {
namespace {

const BiasRule kAttentionBias = {.key = "attention_bias"};  // of q, k, v and o

const FixedKey kNoWindow = {"sliding_window", {}, "attention of this family sees all earlier tokens"};
const FixedKey kNoWindowFlag = {"use_sliding_window", false,
                                "attention of this family sees all earlier tokens"};
const FixedKey kNoAttentionBias = {"attention_bias", false, "attention of this family has no biases"};
const FixedKey kAlwaysNormed = {"norm_topk_prob", true, "this family's router always divides by the sum"};
const FixedKey kNoJitter = {"router_jitter_noise", 0.0, "routers here add no noise"};
const FixedKey kNoResidualDropout = {"resid_pdrop", 0.0, "training here has no dropout"};
const FixedKey kNoEmbeddingDropout = {"embd_pdrop", 0.0, "training here has no dropout"};
const FixedKey kNoClip = {"clip_qkv", {}, "q, k and v are not clipped here"};
const FixedKey kNoAttentionCap = {"attn_logit_softcapping", {}, "scores are not capped here"};
const FixedKey kNoLogitCap = {"final_logit_softcapping", {}, "logits are not capped here"};
const FixedKey kNoMlpBias = {"mlp_bias", false, "MLPs of this family have no biases"};
const FixedKey kNoHeadBias = {"lm_head_bias", false, "the head has no bias"};
const FixedKey kEveryAttention = {"full_attn_mod", 1.0, "attention of this family is one kind in all layers"};
const FixedKey kCausal = {"use_bidirectional_attention", false, "attention here is causal"};
const FixedKey kSigmoid = {"scoring_func", "sigmoid", "the only scores of this family"};
const FixedKey kNoAuxTopk = {"topk_method", "noaux_tc", "the only choice of this family"};
const FixedKey kNoAuxLoss = {"router_aux_loss_coef", 0.0,
                             "a sigmoid router has no such loss in transformers; a run may ask for one"};
const FixedKey kNoRouterLogits = {"output_router_logits", false,
                                  "this family adds no router losses, which it stands for"};
const FixedKey kEveryLayer = {"moe_layer_freq", 1.0, "all layers after the dense ones have experts"};

const MoeRule kQwen3Experts = {.sparse = SparseRule::kStepAndList};

// ---- Mixtures of experts ------------------------------------------------------------------------------

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

const Family kQwen2Moe = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .bias = {.key = "qkv_bias", .fallback = true, .of_output = false},
    .window = WindowRule::kFlag,
    .moe = MoeRule{.sparse = SparseRule::kStepAndList,
                   .shared = SharedExpertRule{.width_key = "shared_expert_intermediate_size", .gated = true}},
    .num_key_value_heads = 16,
    .without_effect = {"max_window_layers"},  // HF's masks do not read it
};

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

const Family kDeepseekV3 = {
    .model_type = "deepseek_v3",
    .architecture = "DeepseekV3ForCausalLM",
    .latent_attention = true,
    .bias = kAttentionBias,
    .rope = {.pairs = RopePairs::kInterleavedToHalves},
    .moe = MoeRule{.experts_key = "n_routed_experts",
                   .sparse = SparseRule::kAfterFirst,
                   .router = {.score = RouterScore::kSigmoid, .divide = {DivideBy::kSumPlus, 1e-20f}},
                   .topk_norm_fallback = true,
                   .grouped = true,
                   .aux_loss_fallback = std::nullopt,
                   .shared = SharedExpertRule{.width_key = "n_shared_experts",
                                              .counts_experts = true,
                                              .name = "shared_experts"}},
    .max_position_embeddings = 4096,
    .fixed = {kSigmoid, kNoAuxTopk, kNoAuxLoss, kNoRouterLogits, kEveryLayer},
    // Layers that predict further tokens are no part of HF's model.
    .without_effect = {"pretraining_tp", "ep_size", "aux_loss_alpha", "seq_aux", "num_nextn_predict_layers"},
};

const Family kQwen3VlMoeText = {
    .model_type = "qwen3_vl_moe_text",
    .architecture = "Qwen3VLMoeForConditionalGeneration",
    .qk_norm = QkNorm::kPerHead,
    .bias = kAttentionBias,
    .rope = {.theta = 5e6, .multimodal = true},
    .moe = MoeRule{.sparse = SparseRule::kStepAndList,
                   .topk_norm = TopkNorm::kAlways,
                   .transposed = true,
                   .layout = ExpertLayout::kStackedTransposed},
    .num_key_value_heads = 16,
    .max_position_embeddings = 128000,
    .fixed = {kNoWindow, kNoWindowFlag, kAlwaysNormed},
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

// ---- Dense --------------------------------------------------------------------------------------------

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
    .mlp_bias = true,
    .max_position_embeddings = 2048,
    .without_effect = {"pretraining_tp"},
};

const Family kGlm4 = {
    .model_type = "glm4",
    .architecture = "Glm4ForCausalLM",
    .bias = {.key = "attention_bias", .fallback = true, .of_output = false},
    .rope = {.pairs = RopePairs::kInterleaved, .partial = 0.5},
    .rms_norm_eps = 1.5625e-7,
    .norms = {.attention_output = "post_self_attn_layernorm", .feed_forward_output = "post_mlp_layernorm"},
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
    .rope = {.theta = 1e6, .local_theta = 1e4},
    .query_scalar = true,
    .norm_offset = 1,
    .norms = {.attention_output = "post_attention_layernorm",
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

// ---- Text towers inside larger models, and what is known but does not run -------------------------------

/// The model that a text tower is in.
struct Outer {
  std::string model_type, architecture;
  FilePrefix prefix = {};
};

Family inside(Family text, const Outer& outer, const std::vector<std::string>& path,
              const std::vector<std::string>& without_effect, const NamePatterns& towers) {
  text.text_config = TextConfigRule{path, text.model_type, without_effect, towers};
  text.model_type = outer.model_type;
  text.architecture = outer.architecture;
  text.prefix = outer.prefix;
  return text;
}

Family refused(const std::string& model_type, const std::string& why) {
  return {.model_type = model_type, .architecture = "", .refusal = why};
}

const std::vector<std::string> kVisionKeys = {"vision_config", "image_token_id", "video_token_id",
                                              "vision_start_token_id", "vision_end_token_id"};
const std::vector<std::string> kThinkerKeys = {
    "vision_config",           "audio_config",         "image_token_id",
    "video_token_id",          "audio_token_id",       "vision_start_token_id",
    "vision_end_token_id",     "audio_start_token_id", "audio_end_token_id",
    "position_id_per_seconds", "user_token_id",        "talker_config",
    "code2wav_config",         "enable_audio_output",  "im_start_token_id",
    "im_end_token_id",         "tts_pad_token_id",     "tts_bos_token_id",
    "tts_eos_token_id",        "system_token_id",      "assistant_token_id"};

const std::string kDeltaNet =
    "its layer_types hold \"linear_attention\" (gated delta net), and its full attention has an output gate; "
    "neither is here. Its norms, partial rotary embedding, experts and gated shared expert are";

std::vector<Family> make_families() {
  return {
      kDeepseekV3,
      kGemma3Text,
      kGlm4,
      kLlama,
      kMixtral,
      kOlmoe,
      kPhi3,
      kQwen2Moe,
      kQwen3,
      kQwen3Moe,
      kQwen3OmniMoeText,
      inside(kQwen3OmniMoeText, {"qwen3_omni_moe_thinker", "Qwen3OmniMoeThinkerForConditionalGeneration"},
             {"text_config"}, kThinkerKeys, {"audio_tower.*", "visual.*"}),
      inside(kQwen3OmniMoeText,
             {"qwen3_omni_moe",
              "Qwen3OmniMoeForConditionalGeneration",
              {"thinker.model.", "thinker.lm_head.weight"}},
             {"thinker_config", "text_config"}, kThinkerKeys,
             {"thinker.audio_tower.*", "thinker.visual.*", "talker.*", "code2wav.*"}),
      kQwen3VlMoeText,
      inside(
          kQwen3VlMoeText,
          {"qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", {"model.language_model.", "lm_head.weight"}},
          {"text_config"}, kVisionKeys, {"model.visual.*"}),
      refused("qwen3_next", kDeltaNet),
      refused("qwen3_5_moe", kDeltaNet),
      refused("qwen3_5_moe_text", kDeltaNet),
      refused("gemma3n",
              "of its blocks the MLP with Gaussian top-k and the norms are here; per-layer "
              "embeddings, AltUp, LAuReL and shared key-value layers are not"),
      refused("gemma3n_text",
              "of its blocks the MLP with Gaussian top-k and the norms are here; per-layer "
              "embeddings, AltUp, LAuReL and shared key-value layers are not"),
  };
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> table = make_families();
  return table;
}

const Family* find_family(const std::string& model_type) {
  for (const Family& family : families())
    if (family.model_type == model_type) return &family;
  return nullptr;
}

bool is_of_a_tower(const Family& family, const std::string& tensor) {
  return family.text_config && std::ranges::any_of(family.text_config->towers, [&](const std::string& tower) {
           return matches_glob(tower, tensor);
         });
}

bool stays_fp32(const std::string& tensor) {
  return tensor.ends_with(".e_score_correction_bias");
}

std::string known_families() {
  std::string list;
  for (const Family& family : families())
    if (family.refusal.empty()) list += (list.empty() ? "" : ", ") + family.model_type;
  return list;
}

}  // namespace moeloom
