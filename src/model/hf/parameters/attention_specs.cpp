#include "hf/parameters/attention_specs.hpp"

#include "model/hf/family.hpp"
#include "moeloom/base/violations.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom {
namespace {

/// DeepSeek's latents are normalised with HF's default epsilon, whatever rms_norm_eps says.
LatentSpec latent_of(const ModelConfig& config) {
  return {.q_rank = config.q_lora_rank,
          .kv_rank = config.kv_lora_rank,
          .nope_dim = config.qk_nope_head_dim,
          .rope_dim = config.qk_rope_head_dim,
          .norm = {.eps = 1e-6f}};
}

float score_scale(const ModelConfig& config, Index head_dim) {
  if (config.score_scale > 0) return static_cast<float>(config.score_scale);
  return static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
}

/// The layer whose keys and values `layer` reads: the last one of its kind that has its own.
std::optional<Index> keys_of(const ModelConfig& config, Index layer) {
  if (!config.shares_keys(layer)) return std::nullopt;
  for (Index other = config.num_hidden_layers - config.num_kv_shared_layers - 1; other >= 0; --other)
    if ((config.window(other) > 0) == (config.window(layer) > 0)) return other;
  return std::nullopt;  // config_violations() refuses it
}

/// It is the last of its kind that has keys of its own, and some layer of its kind has not.
bool lends_keys(const ModelConfig& config, Index layer) {
  if (config.num_kv_shared_layers == 0 || config.shares_keys(layer)) return false;
  const auto is_alike = [&](Index other) { return (config.window(other) > 0) == (config.window(layer) > 0); };
  Index other = layer + 1;
  while (other < config.num_hidden_layers && !is_alike(other)) ++other;
  return other < config.num_hidden_layers && config.shares_keys(other);
}

/// What the heads of a layer are, before anything is done with them.
void set_heads(const ModelConfig& config, Index layer, AttentionSpec& spec) {
  spec.heads = config.heads(layer);
  spec.kv_heads = config.kv_heads(layer);
  spec.head_dim = config.head_size(layer);
  spec.value_dim = config.value_dim > 0 ? config.value_dim : spec.head_dim;
  if (!config.family().latent_attention) return;
  spec.value_dim = config.v_head_dim;
  spec.latent = latent_of(config);
}

void set_values(const ModelConfig& config, Index layer, AttentionSpec& spec) {
  spec.value_norm = config.family().value_norm;
  spec.value_scale = static_cast<float>(config.value_scale);
  spec.keys_are_values = config.keys_are_values && spec.window == 0;
  spec.keys_of = keys_of(config, layer);
  spec.lends_keys = lends_keys(config, layer);
}

/// What says which of ModelConfig::ropes() a layer has; layers of the same key turn alike.
struct RopeKey {
  bool windowed = false;
  Index head_dim = 0;
  double theta = 0;  // 0: the layer does not turn
  bool operator==(const RopeKey&) const = default;
};

bool turns(const ModelConfig& config, Index layer) {
  if (!config.rope_layers.empty()) return config.rope_layers[at(layer)] != 0;
  return config.layer_rope_theta.empty() || config.layer_rope_theta[at(layer)] != 0;
}

RopeKey rope_key(const ModelConfig& config, Index layer) {
  const bool windowed = config.window_rope && config.window(layer) > 0;
  const double theta = !config.layer_rope_theta.empty() ? config.layer_rope_theta[at(layer)]
                       : windowed                       ? config.window_rope->theta
                                                        : config.rope_theta;
  return {windowed, config.head_size(layer), theta};
}

/// Of all layers that turn, each once, after that of a layer as the config's own numbers say.
std::vector<RopeKey> rope_keys(const ModelConfig& config) {
  std::vector<RopeKey> keys = {{false, config.head_dim, config.rope_theta}};
  if (!config.layer_head_dims.empty() || !config.layer_rope_theta.empty()) keys.clear();
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer)
    if (const RopeKey key = rope_key(config, layer);
        config.is_attention(layer) && turns(config, layer) && std::ranges::count(keys, key) == 0)
      keys.push_back(key);
  return keys;
}

Index rope_of(const ModelConfig& config, Index layer) {
  if (!turns(config, layer)) return kNoRope;
  const RopeKey key = rope_key(config, layer);
  if (config.layer_head_dims.empty() && config.layer_rope_theta.empty()) return key.windowed ? 1 : 0;
  const std::vector<RopeKey> keys = rope_keys(config);
  return std::ranges::find(keys, key) - keys.begin();
}

/// Elements of a head that turn, asked before either number is known to be any good.
Index turned_elements(Index head_dim, double share) {
  const double dim = static_cast<double>(head_dim) * share;
  return dim >= 0 && dim <= static_cast<double>(kLargestCount) ? static_cast<Index>(dim) : 0;
}

RopeSettings rope_settings(const ModelConfig& config, const RopeKey& key) {
  const WindowRope of_others{config.rope_theta, config.partial_rotary_factor, config.rope_scaling};
  const WindowRope& rope = key.windowed ? *config.window_rope : of_others;
  RopeSettings settings;
  settings.theta = key.theta;
  settings.pairs = config.rope_interleave ? config.family().rope.pairs : RopePairs::kHalfSplit;
  settings.scaling = rope.scaling;
  settings.rotary_dim = config.family().latent_attention
                            ? config.qk_rope_head_dim
                            : turned_elements(key.head_dim, rope.partial_rotary_factor);
  if (auto* proportional = std::get_if<ProportionalScaling>(&settings.scaling)) {
    proportional->turned = settings.rotary_dim / 2;
    settings.rotary_dim = key.head_dim;
  }
  return settings;
}

}  // namespace

RmsNormSettings norm_settings(const ModelConfig& config) {
  return {.eps = static_cast<float>(config.rms_norm_eps), .weight_offset = config.family().norm_offset};
}

AttentionSpec attention_of(const ModelConfig& config, Index layer, const std::string& prefix) {
  const Family& family = config.family();
  AttentionSpec spec;
  spec.prefix = prefix + "self_attn.";
  spec.hidden_size = config.hidden_size;
  set_heads(config, layer, spec);
  spec.qk_norm = config.use_qk_norm ? family.qk_norm : QkNorm::kNone;
  spec.norm = norm_settings(config);
  spec.qk_norm_after_rope = family.qk_norm_after_rope;
  spec.qk_norm_weight = family.qk_norm_weight;
  if (family.gate) spec.gate = family.gate->gate;
  if (spec.gate && family.gate->by_key) spec.gate->per_head = config.gate_per_head;
  spec.qkv_bias = config.attention_bias;
  spec.output_bias = config.attention_bias && family.bias.of_output;
  spec.window = config.window(layer);
  spec.sinks = family.sinks == SinkRule::kAll || (family.sinks == SinkRule::kWindows && spec.window > 0);
  spec.rope = rope_of(config, layer);
  set_values(config, layer, spec);
  if (!config.chunks.empty()) spec.chunk = config.chunks[at(layer)];
  if (family.chunked && spec.rope == kNoRope) {  // Llama 4
    spec.qk_norm = QkNorm::kNone;
    if (config.floor_scale > 0)
      spec.temperature = QueryTemperature{config.attn_scale, static_cast<double>(config.floor_scale)};
  }
  spec.scale = score_scale(config, spec.head_dim);
  return spec;
}

Index ModelConfig::rotary_dim() const {
  return family().latent_attention ? qk_rope_head_dim : turned_elements(head_dim, partial_rotary_factor);
}

Index ModelConfig::heads(Index layer) const {
  return layer_heads.empty() ? num_attention_heads : layer_heads[at(layer)];
}
Index ModelConfig::kv_heads(Index layer) const {
  return layer_kv_heads.empty() ? num_key_value_heads : layer_kv_heads[at(layer)];
}
Index ModelConfig::head_size(Index layer) const {
  return layer_head_dims.empty() ? head_dim : layer_head_dims[at(layer)];
}
Index ModelConfig::top_k(Index layer) const {
  return layer_top_k.empty() ? num_experts_per_tok : layer_top_k[at(layer)];
}

std::vector<RopeSettings> ModelConfig::ropes() const {
  std::vector<RopeSettings> list;
  for (const RopeKey& key : rope_keys(*this)) list.push_back(rope_settings(*this, key));
  return list;
}

}  // namespace moeloom
