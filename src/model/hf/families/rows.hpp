// What rows of several files say alike: keys that may only say what changes nothing.
#pragma once

#include "model/hf/family.hpp"

namespace moeloom {

inline const RouterRule kSigmoidRouter = {.score = RouterScore::kSigmoid,
                                          .divide = {DivideBy::kSumPlus, 1e-20f}};
inline const BiasRule kAttentionBias = {.key = "attention_bias"};  // of q, k, v and o

inline const FixedKey kNoWindow = {"sliding_window", {}, "attention of this family sees all earlier tokens"};
inline const FixedKey kNoWindowFlag = {"use_sliding_window", false,
                                       "attention of this family sees all earlier tokens"};
inline const FixedKey kNoAttentionBias = {"attention_bias", false, "attention of this family has no biases"};
inline const FixedKey kAlwaysNormed = {"norm_topk_prob", true,
                                       "this family's router always divides by the sum"};
inline const FixedKey kNoJitter = {"router_jitter_noise", 0.0, "routers here add no noise"};
inline const FixedKey kNoResidualDropout = {"resid_pdrop", 0.0, "training here has no dropout"};
inline const FixedKey kNoEmbeddingDropout = {"embd_pdrop", 0.0, "training here has no dropout"};
inline const FixedKey kNoClip = {"clip_qkv", {}, "q, k and v are not clipped here"};
inline const FixedKey kNoAttentionCap = {"attn_logit_softcapping", {}, "scores are not capped here"};
inline const FixedKey kNoLogitCap = {"final_logit_softcapping", {}, "logits are not capped here"};
inline const FixedKey kNoMlpBias = {"mlp_bias", false, "MLPs of this family have no biases"};
inline const FixedKey kNoHeadBias = {"lm_head_bias", false, "the head has no bias"};
inline const FixedKey kEveryAttention = {"full_attn_mod", 1.0,
                                         "attention of this family is one kind in all layers"};
inline const FixedKey kCausal = {"use_bidirectional_attention", false, "attention here is causal"};
inline const FixedKey kSigmoid = {"scoring_func", "sigmoid", "the only scores of this family"};
inline const FixedKey kSoftmax = {"scoring_func", "softmax", "the only scores of this family"};
inline const FixedKey kNoAuxTopk = {"topk_method", "noaux_tc", "the only choice of this family"};
inline const FixedKey kNoAuxLoss = {
    "router_aux_loss_coef", 0.0, "a sigmoid router has no such loss in transformers; a run may ask for one"};
inline const FixedKey kNoRouterLogits = {"output_router_logits", false,
                                         "this family adds no router losses, which it stands for"};
inline const FixedKey kEveryLayer = {"moe_layer_freq", 1.0, "all layers after the dense ones have experts"};

/// Keys beside the text model of Qwen's models that see.
inline const std::vector<std::string> kVisionKeys = {"vision_config", "image_token_id", "video_token_id",
                                                     "vision_start_token_id", "vision_end_token_id"};

/// The model that a text tower is in.
struct Outer {
  std::string model_type, architecture;
  FilePrefix prefix = {};
};
/// The row of that model: its text model's keys lie at `path`, and the objects around them also have those
/// keys; `towers` are tensors of its other towers.
Family inside(Family text, const Outer& outer, const std::vector<std::string>& path,
              const std::vector<std::string>& without_effect, const NamePatterns& towers);

// Rows of one descent each, as HF's config classes of 4.57 or 5.15 have their fallbacks.
std::vector<Family> deepseek_families();  // experts chosen as DeepSeek does: groups, a correction bias
std::vector<Family> qwen_families();
std::vector<Family> mixtral_families();   // further mixtures of experts
std::vector<Family> further_families();   // with a design of their own each
std::vector<Family> hybrid_families();    // whose layers are not all attention
std::vector<Family> sigmoid_families();   // of transformers 5, chosen by sigmoids and a bias
std::vector<Family> windowed_families();  // of transformers 5, whose layers with a window differ
std::vector<Family> gemma4_families();
std::vector<Family> dense_families();
std::vector<Family> refused_families();

}  // namespace moeloom
