// From config.json's words and the family's row to what the layers compute.
#include "model/hf/family.hpp"
#include "model/parts/layer_spec.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"
#include "moeloom/model/hf/config.hpp"

#include <cmath>

#include "hf/parameters/attention_specs.hpp"

namespace moeloom {
namespace {

NormSpec norm_of(const ModelConfig& config, const std::string& name) {
  const NormKind kind = config.layer_norm ? NormKind::kLayerWithoutBias : config.family().norm_kind;
  return {name + ".weight", config.hidden_size, norm_settings(config), kind};
}

std::optional<NormSpec> optional_norm(const ModelConfig& config, const std::string& layer,
                                      const std::string& name) {
  if (name.empty()) return std::nullopt;
  return norm_of(config, layer + name);
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

MlpSpec mlp_of(const ModelConfig& config, Index layer, const std::string& prefix) {
  const bool twice = config.double_wide_mlp && config.shares_keys(layer);
  return {.prefix = prefix + "mlp.",
          .hidden_size = config.hidden_size,
          .width = config.intermediate_size * (twice ? 2 : 1),
          .activation = {.act = *activation_named(config.hidden_act)},
          .bias = config.mlp_bias};
}

Division division_of(const ModelConfig& config, const MoeRule& rule) {
  if (!config.norm_topk_prob) return {DivideBy::kNothing};
  if (rule.least_sum_key.empty()) return rule.router.divide;
  return {rule.router.divide.by, static_cast<float>(config.least_sum)};
}

RouterSettings router_of(const ModelConfig& config, const MoeRule& rule, Index layer) {
  return {.num_experts = config.num_experts,
          .top_k = config.top_k(layer),
          .logit_cap = static_cast<float>(config.router_logit_cap),
          .score = rule.router.score,
          .choose_by = config.hash_router ? ChooseBy::kHash : rule.router.choose_by,
          .group_worth = rule.router.group_worth,
          .num_groups = config.n_group,
          .topk_group = config.topk_group,
          .weigh_by = config.sigmoid_of_chosen ? WeighBy::kSigmoidOfLogit : rule.router.weigh_by,
          .nearness = static_cast<float>(2 * config.router_jitter_noise),
          .divide = division_of(config, rule),
          .scaling_factor = static_cast<float>(config.routed_scaling_factor),
          .balance_by = rule.router.balance_by,
          .weight_on_input = rule.router.weight_on_input};
}

/// A router that reads the residual stream: x / rms(x) * router.scale / sqrt(D) (Gemma4).
RouterNorm router_norm_of(const ModelConfig& config, const std::string& prefix) {
  return {.norm = {prefix + "gate.input_scale", config.hidden_size, norm_settings(config)},
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.hidden_size)))};
}

MoeSpec moe_of(const ModelConfig& config, Index layer, const std::string& prefix) {
  const MoeRule& rule = *config.family().moe;
  MoeSpec spec = {.prefix = prefix + "mlp.",
                  .hidden_size = config.hidden_size,
                  .width = config.moe_intermediate_size,
                  .activation = rule.activation,
                  .router = router_of(config, rule, layer),
                  .correction_bias = rule.corrected && config.correction_bias,
                  .router_bias = rule.biased,
                  .expert_bias = rule.biased || (rule.biased_by_key && config.mlp_bias),
                  .expert_scale = rule.expert_scale};
  spec.activation.act = *activation_named(config.hidden_act);
  if (rule.shared && config.shared_expert_intermediate_size > 0)
    spec.shared =
        SharedExpertSpec{config.shared_expert_intermediate_size, rule.shared->gated, config.mlp_bias};
  if (spec.shared && config.shared_average) spec.output_scale = 0.5f;
  if (rule.router_norm) spec.router_norm = router_norm_of(config, spec.prefix);
  return spec;
}

/// The second half of a layer, of one of its kinds or, side by side, both.
void set_feed_forward(const ModelConfig& config, Index layer, const std::string& prefix, LayerSpec& spec) {
  const bool both = config.family().side_by_side;
  const bool sparse = config.is_sparse(layer);
  if (sparse) spec.moe = moe_of(config, layer, prefix);
  if (!sparse || both) spec.mlp = mlp_of(config, layer, prefix);
  if (!sparse || !both) return;
  spec.side_by_side = SideBySideNorms{norm_of(config, prefix + "post_feedforward_layernorm_1"),
                                      norm_of(config, prefix + "pre_feedforward_layernorm_2"),
                                      norm_of(config, prefix + "post_feedforward_layernorm_2")};
}

PerLayerInputSpec per_layer_input_of(const ModelConfig& config, const std::string& prefix) {
  return {.prefix = prefix,
          .hidden_size = config.hidden_size,
          .width = config.hidden_size_per_layer_input,
          .act = *activation_named(config.hidden_act),
          .norm = norm_of(config, prefix + "post_per_layer_input_norm")};
}

}  // namespace

const Family& ModelConfig::family() const {
  const Family* family = find_family(model_type);
  if (!family || !family->refusal.empty())
    throw ConfigError({"model_type = \"" + model_type + "\" is not supported; known: " + known_families()});
  return *family;
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
  set_feed_forward(*this, layer, prefix, spec);
  spec.feed_forward_output_norm = optional_norm(
      *this, prefix,
      is_sparse(layer) && !names.sparse_output.empty() ? names.sparse_output : names.feed_forward_output);
  spec.residual_scale = static_cast<float>(residual_multiplier);
  spec.parallel = family().parallel;
  if (hidden_size_per_layer_input > 0) spec.per_layer_input = per_layer_input_of(*this, prefix);
  if (family().side_by_side) spec.scalar = prefix + "layer_scalar";
  return spec;
}

NormSpec ModelConfig::final_norm() const {
  return norm_of(*this, "model.norm");
}

std::optional<PerLayerEmbeddingSpec> ModelConfig::per_layer_embedding() const {
  const Index width = hidden_size_per_layer_input;
  if (width == 0) return std::nullopt;
  return PerLayerEmbeddingSpec{
      .width = width,
      .layers = num_hidden_layers,
      .vocab_size = vocab_size_per_layer_input,
      .embedding_scale = std::sqrt(static_cast<float>(width)),
      .projection_scale = 1 / std::sqrt(static_cast<float>(hidden_size)),
      .norm = {"model.per_layer_projection_norm.weight", width, norm_settings(*this)}};
}

float ModelConfig::embedding_scale() const {
  const float scale = family().scaled_embeddings ? std::sqrt(static_cast<float>(hidden_size)) : 1.0f;
  return scale * static_cast<float>(embedding_multiplier);
}

}  // namespace moeloom
