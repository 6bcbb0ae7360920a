// From config.json's words and the family's row to what the layers compute.
#include "model/hf/family.hpp"
#include "model/parts/layer_spec.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"
#include "moeloom/model/hf/config.hpp"

#include <cmath>

namespace moeloom {
namespace {

RmsNormSettings norm_settings(const ModelConfig& config) {
  return {.eps = static_cast<float>(config.rms_norm_eps), .weight_offset = config.family().norm_offset};
}

NormSpec norm_of(const ModelConfig& config, const std::string& name) {
  return {name + ".weight", config.hidden_size, norm_settings(config), config.family().norm_kind};
}

std::optional<NormSpec> optional_norm(const ModelConfig& config, const std::string& layer,
                                      const std::string& name) {
  if (name.empty()) return std::nullopt;
  return norm_of(config, layer + name);
}

/// DeepSeek's latents are normalised with HF's default epsilon, whatever rms_norm_eps says.
LatentSpec latent_of(const ModelConfig& config) {
  return {.q_rank = config.q_lora_rank,
          .kv_rank = config.kv_lora_rank,
          .nope_dim = config.qk_nope_head_dim,
          .rope_dim = config.qk_rope_head_dim,
          .norm = {.eps = 1e-6f}};
}

float score_scale(const ModelConfig& config) {
  if (config.score_scale > 0) return static_cast<float>(config.score_scale);
  return static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)));
}

AttentionSpec attention_of(const ModelConfig& config, Index layer, const std::string& prefix) {
  const Family& family = config.family();
  AttentionSpec spec;
  spec.prefix = prefix + "self_attn.";
  spec.hidden_size = config.hidden_size;
  spec.heads = config.num_attention_heads;
  spec.kv_heads = config.num_key_value_heads;
  spec.head_dim = spec.value_dim = config.head_dim;
  if (family.latent_attention) {
    spec.value_dim = config.v_head_dim;
    spec.latent = latent_of(config);
  }
  spec.qk_norm = config.use_qk_norm ? family.qk_norm : QkNorm::kNone;
  spec.norm = norm_settings(config);
  spec.qk_norm_after_rope = family.qk_norm_after_rope;
  spec.qk_norm_weight = family.qk_norm_weight;
  if (family.output_gate) spec.gate = OutputGate{.with_query = true};
  spec.sinks = family.sinks;
  spec.qkv_bias = config.attention_bias;
  spec.output_bias = config.attention_bias && family.bias.of_output;
  if (!config.windows.empty()) spec.window = config.windows[static_cast<std::size_t>(layer)];
  spec.rope = config.rope_local_base_freq > 0 && spec.window > 0 ? 1 : 0;
  if (!config.chunks.empty()) spec.chunk = config.chunks[at(layer)];
  if (!config.rope_layers.empty() && config.rope_layers[at(layer)] == 0) {  // Llama 4
    spec.rope = kNoRope;
    spec.qk_norm = QkNorm::kNone;
    if (config.floor_scale > 0)
      spec.temperature = QueryTemperature{config.attn_scale, static_cast<double>(config.floor_scale)};
  }
  spec.scale = score_scale(config);
  return spec;
}

ShortConvSpec short_conv_of(const ModelConfig& config, const std::string& prefix) {
  return {.prefix = prefix + "conv.",
          .hidden_size = config.hidden_size,
          .taps = config.conv_taps,
          .bias = config.conv_bias};
}

DeltaNetSpec delta_net_of(const ModelConfig& config, const std::string& prefix) {
  return {.prefix = prefix + "linear_attn.",
          .hidden_size = config.hidden_size,
          .key_heads = config.linear_num_key_heads,
          .value_heads = config.linear_num_value_heads,
          .key_dim = config.linear_key_head_dim,
          .value_dim = config.linear_value_head_dim,
          .taps = config.conv_taps,
          .norm = {.eps = static_cast<float>(config.rms_norm_eps)}};
}

MixerSpec mixer_of(const ModelConfig& config, Index layer, const std::string& prefix) {
  if (config.is_attention(layer)) return attention_of(config, layer, prefix);
  if (config.family().other_mixer == OtherMixer::kShortConv) return short_conv_of(config, prefix);
  return delta_net_of(config, prefix);
}

MlpSpec mlp_of(const ModelConfig& config, const std::string& prefix) {
  return {.prefix = prefix + "mlp.",
          .hidden_size = config.hidden_size,
          .width = config.intermediate_size,
          .activation = {.act = *activation_named(config.hidden_act)},
          .bias = config.mlp_bias};
}

Division division_of(const ModelConfig& config, const MoeRule& rule) {
  if (!config.norm_topk_prob) return {DivideBy::kNothing};
  if (rule.least_sum_key.empty()) return rule.router.divide;
  return {rule.router.divide.by, static_cast<float>(config.least_sum)};
}

RouterSettings router_of(const ModelConfig& config, const MoeRule& rule) {
  return {.num_experts = config.num_experts,
          .top_k = config.num_experts_per_tok,
          .score = rule.router.score,
          .choose_by = config.hash_router ? ChooseBy::kHash : rule.router.choose_by,
          .group_worth = rule.router.group_worth,
          .num_groups = config.n_group,
          .topk_group = config.topk_group,
          .weigh_by = rule.router.weigh_by,
          .nearness = static_cast<float>(2 * config.router_jitter_noise),
          .divide = division_of(config, rule),
          .scaling_factor = static_cast<float>(config.routed_scaling_factor),
          .balance_by = rule.router.balance_by,
          .weight_on_input = rule.router.weight_on_input};
}

MoeSpec moe_of(const ModelConfig& config, const std::string& prefix) {
  const MoeRule& rule = *config.family().moe;
  MoeSpec spec = {.prefix = prefix + "mlp.",
                  .hidden_size = config.hidden_size,
                  .width = config.moe_intermediate_size,
                  .activation = rule.activation,
                  .router = router_of(config, rule),
                  .correction_bias = rule.corrected && config.correction_bias,
                  .router_bias = rule.biased,
                  .expert_bias = rule.biased || config.mlp_bias};
  spec.activation.act = *activation_named(config.hidden_act);
  if (rule.shared && config.shared_expert_intermediate_size > 0)
    spec.shared =
        SharedExpertSpec{config.shared_expert_intermediate_size, rule.shared->gated, config.mlp_bias};
  return spec;
}

}  // namespace

const Family& ModelConfig::family() const {
  const Family* family = find_family(model_type);
  if (!family || !family->refusal.empty())
    throw ConfigError({"model_type = \"" + model_type + "\" is not supported; known: " + known_families()});
  return *family;
}

Index ModelConfig::rotary_dim() const {
  if (family().latent_attention) return qk_rope_head_dim;
  const double dim = static_cast<double>(head_dim) * partial_rotary_factor;
  // Asked before either number is known to be any good.
  return dim >= 0 && dim <= static_cast<double>(kLargestCount) ? static_cast<Index>(dim) : 0;
}

LayerSpec ModelConfig::layer(Index layer) const {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const LayerNormNames& names = family().norms;
  LayerSpec spec;
  spec.hidden_size = hidden_size;
  spec.mixer_norm = optional_norm(*this, prefix, names.mixer);
  spec.mixer = mixer_of(*this, layer, prefix);
  spec.mixer_output_norm = optional_norm(*this, prefix, names.mixer_output);
  spec.feed_forward_norm = optional_norm(*this, prefix, names.feed_forward);
  if (is_sparse(layer))
    spec.moe = moe_of(*this, prefix);
  else
    spec.mlp = mlp_of(*this, prefix);
  spec.feed_forward_output_norm = optional_norm(*this, prefix, names.feed_forward_output);
  spec.residual_scale = static_cast<float>(residual_multiplier);
  return spec;
}

NormSpec ModelConfig::final_norm() const {
  return norm_of(*this, "model.norm");
}

std::vector<RopeSettings> ModelConfig::ropes() const {
  RopeSettings settings;
  settings.rotary_dim = rotary_dim();
  settings.theta = rope_theta;
  settings.pairs = rope_interleave ? family().rope.pairs : RopePairs::kHalfSplit;
  settings.scaling = rope_scaling;
  std::vector<RopeSettings> list;
  list.push_back(settings);
  if (rope_local_base_freq > 0) {  // positions are never scaled within a window
    settings.theta = rope_local_base_freq;
    settings.scaling = {};
    list.push_back(settings);
  }
  return list;
}

float ModelConfig::embedding_scale() const {
  const float scale = family().scaled_embeddings ? std::sqrt(static_cast<float>(hidden_size)) : 1.0f;
  return scale * static_cast<float>(embedding_multiplier);
}

}  // namespace moeloom
