#include "hf/config/config_differences.hpp"

#include "model/hf/family.hpp"

#include <algorithm>
#include <cmath>

namespace moeloom {
namespace {

class Differences {
 public:
  Differences(const ModelConfig& one, const ModelConfig& other) : one_(one), other_(other) {}

  template <typename Value>
  void add_if(const char* name, Value ModelConfig::*field) {
    if (one_.*field != other_.*field) names_.emplace_back(name);
  }
  /// What a function makes of each.
  template <typename Function>
  void add_unless_same(const char* name, Function of) {
    if (of(one_) != of(other_)) names_.emplace_back(name);
  }
  /// A list with an entry a layer, or an empty one that says `usual` of each.
  template <typename Value, typename Usual>
  void add_layers(const char* name, std::vector<Value> ModelConfig::*list, Usual usual) {
    add_unless_same(name, [&](const ModelConfig& config) {
      const auto layers = static_cast<std::size_t>(std::max<Index>(config.num_hidden_layers, 0));
      return (config.*list).empty() ? std::vector<Value>(layers, usual(config)) : config.*list;
    });
  }
  void add_layers_of(const char* name, std::vector<Index> ModelConfig::*list, Index usual) {
    add_layers(name, list, [usual](const ModelConfig&) { return usual; });
  }

  std::vector<std::string> names() && { return std::move(names_); }

 private:
  const ModelConfig& one_;
  const ModelConfig& other_;
  std::vector<std::string> names_;
};

std::vector<bool> sparse_layers(const ModelConfig& config) {
  std::vector<bool> sparse;
  for (Index layer = 0; layer < config.num_hidden_layers; ++layer) sparse.push_back(config.is_sparse(layer));
  return sparse;
}

bool has_windows(const ModelConfig& config) {
  return std::ranges::any_of(config.windows, [](Index window) { return window > 0; });
}

void compare_sizes(const ModelConfig& one, Differences& differences) {
  differences.add_if("hidden_act", &ModelConfig::hidden_act);
  differences.add_if("vocab_size", &ModelConfig::vocab_size);
  differences.add_if("hidden_size", &ModelConfig::hidden_size);
  differences.add_if("max_position_embeddings", &ModelConfig::max_position_embeddings);
  differences.add_if("tie_word_embeddings", &ModelConfig::tie_word_embeddings);
  differences.add_if("rms_norm_eps", &ModelConfig::rms_norm_eps);
  differences.add_if("layer_norm", &ModelConfig::layer_norm);
  differences.add_if("initializer_range", &ModelConfig::initializer_range);
  differences.add_if("head_bias", &ModelConfig::head_bias);
  differences.add_if("pad_token_id", &ModelConfig::pad_token_id);
  differences.add_if("embedding_multiplier", &ModelConfig::embedding_multiplier);
  differences.add_if("residual_multiplier", &ModelConfig::residual_multiplier);
  differences.add_if("logits_scaling", &ModelConfig::logits_scaling);
  differences.add_if("logit_cap", &ModelConfig::logit_cap);
  differences.add_if("hidden_size_per_layer_input", &ModelConfig::hidden_size_per_layer_input);
  if (one.hidden_size_per_layer_input > 0)
    differences.add_if("vocab_size_per_layer_input", &ModelConfig::vocab_size_per_layer_input);
}

void compare_latents(Differences& differences) {
  differences.add_if("q_lora_rank", &ModelConfig::q_lora_rank);
  differences.add_if("kv_lora_rank", &ModelConfig::kv_lora_rank);
  differences.add_if("qk_nope_head_dim", &ModelConfig::qk_nope_head_dim);
  differences.add_if("qk_rope_head_dim", &ModelConfig::qk_rope_head_dim);
  differences.add_if("v_head_dim", &ModelConfig::v_head_dim);
  differences.add_if("rope_interleave", &ModelConfig::rope_interleave);
}

void compare_heads(const ModelConfig& one, Differences& differences) {
  using Config = const ModelConfig&;
  differences.add_layers_of("attention_layers", &ModelConfig::attention_layers, 1);
  differences.add_if("num_attention_heads", &ModelConfig::num_attention_heads);
  differences.add_if("num_key_value_heads", &ModelConfig::num_key_value_heads);
  differences.add_if("head_dim", &ModelConfig::head_dim);
  differences.add_layers("layer_heads", &ModelConfig::layer_heads,
                         [](Config c) { return c.num_attention_heads; });
  differences.add_layers("layer_kv_heads", &ModelConfig::layer_kv_heads,
                         [](Config c) { return c.num_key_value_heads; });
  differences.add_layers("layer_head_dims", &ModelConfig::layer_head_dims,
                         [](Config c) { return c.head_dim; });
  if (one.family().latent_attention)
    compare_latents(differences);
  else
    differences.add_unless_same("value_dim",
                                [](Config c) { return c.value_dim > 0 ? c.value_dim : c.head_dim; });
  differences.add_if("value_scale", &ModelConfig::value_scale);
  differences.add_if("keys_are_values", &ModelConfig::keys_are_values);
  differences.add_if("num_kv_shared_layers", &ModelConfig::num_kv_shared_layers);
  differences.add_if("double_wide_mlp", &ModelConfig::double_wide_mlp);
  differences.add_if("gate_per_head", &ModelConfig::gate_per_head);
  differences.add_if("attention_bias", &ModelConfig::attention_bias);
  if (one.family().qk_norm != QkNorm::kNone) differences.add_if("use_qk_norm", &ModelConfig::use_qk_norm);
  differences.add_unless_same("score_scale", [](Config c) {
    return static_cast<float>(c.score_scale > 0 ? c.score_scale
                                                : 1 / std::sqrt(static_cast<double>(c.head_dim)));
  });
}

void compare_positions(const ModelConfig& one, Differences& differences) {
  using Config = const ModelConfig&;
  differences.add_layers_of("windows", &ModelConfig::windows, 0);
  differences.add_layers_of("chunks", &ModelConfig::chunks, 0);
  differences.add_if("floor_scale", &ModelConfig::floor_scale);
  differences.add_if("attn_scale", &ModelConfig::attn_scale);
  differences.add_layers_of("rope_layers", &ModelConfig::rope_layers, 1);
  differences.add_layers("layer_rope_theta", &ModelConfig::layer_rope_theta,
                         [](Config c) { return c.rope_theta; });
  differences.add_if("rope_theta", &ModelConfig::rope_theta);
  differences.add_if("rope_scaling", &ModelConfig::rope_scaling);
  differences.add_if("partial_rotary_factor", &ModelConfig::partial_rotary_factor);
  if (has_windows(one))
    differences.add_unless_same("window_rope", [](Config c) {
      return c.window_rope.value_or(WindowRope{c.rope_theta, c.partial_rotary_factor, c.rope_scaling});
    });
}

void compare_other_mixer(Differences& differences) {
  differences.add_if("conv_taps", &ModelConfig::conv_taps);
  differences.add_if("conv_bias", &ModelConfig::conv_bias);
  differences.add_if("linear_num_key_heads", &ModelConfig::linear_num_key_heads);
  differences.add_if("linear_num_value_heads", &ModelConfig::linear_num_value_heads);
  differences.add_if("linear_key_head_dim", &ModelConfig::linear_key_head_dim);
  differences.add_if("linear_value_head_dim", &ModelConfig::linear_value_head_dim);
}

void compare_router(const MoeRule& rule, Differences& differences) {
  differences.add_if("num_experts_per_tok", &ModelConfig::num_experts_per_tok);
  differences.add_layers("layer_top_k", &ModelConfig::layer_top_k,
                         [](const ModelConfig& c) { return c.num_experts_per_tok; });
  if (rule.router.divide.by != DivideBy::kNothing)
    differences.add_if("norm_topk_prob", &ModelConfig::norm_topk_prob);
  if (rule.aux_loss_fallback) {
    differences.add_if("output_router_logits", &ModelConfig::output_router_logits);
    differences.add_if("router_aux_loss_coef", &ModelConfig::router_aux_loss_coef);
  }
  differences.add_if("router_logit_cap", &ModelConfig::router_logit_cap);
  differences.add_if("sigmoid_of_chosen", &ModelConfig::sigmoid_of_chosen);
  differences.add_if("n_group", &ModelConfig::n_group);
  differences.add_if("topk_group", &ModelConfig::topk_group);
  differences.add_if("routed_scaling_factor", &ModelConfig::routed_scaling_factor);
  if (rule.corrected) differences.add_if("correction_bias", &ModelConfig::correction_bias);
  if (!rule.least_sum_key.empty()) differences.add_if("least_sum", &ModelConfig::least_sum);
  if (rule.router.weigh_by == WeighBy::kSoftmaxOfNear)
    differences.add_if("router_jitter_noise", &ModelConfig::router_jitter_noise);
  differences.add_if("hash_router", &ModelConfig::hash_router);
}

void compare_feed_forward(const ModelConfig& one, Differences& differences) {
  const Family& family = one.family();
  const std::vector<bool> sparse = sparse_layers(one);
  differences.add_unless_same("layers with experts", sparse_layers);
  differences.add_if("mlp_bias", &ModelConfig::mlp_bias);
  if (family.side_by_side || std::ranges::count(sparse, false) > 0)
    differences.add_if("intermediate_size", &ModelConfig::intermediate_size);
  if (!family.moe || std::ranges::count(sparse, true) == 0) return;
  differences.add_if("num_experts", &ModelConfig::num_experts);
  differences.add_if("moe_intermediate_size", &ModelConfig::moe_intermediate_size);
  if (family.moe->shared)
    differences.add_if("shared_expert_intermediate_size", &ModelConfig::shared_expert_intermediate_size);
  differences.add_if("shared_average", &ModelConfig::shared_average);
  compare_router(*family.moe, differences);
}

}  // namespace

std::vector<std::string> differing_fields(const ModelConfig& one, const ModelConfig& other) {
  if (one.model_type != other.model_type) return {"model_type"};
  // Lists of layers are as long as this says.
  if (one.num_hidden_layers != other.num_hidden_layers) return {"num_hidden_layers"};
  Differences differences(one, other);
  compare_sizes(one, differences);
  compare_heads(one, differences);
  compare_positions(one, differences);
  compare_other_mixer(differences);
  compare_feed_forward(one, differences);
  return std::move(differences).names();
}

}  // namespace moeloom
