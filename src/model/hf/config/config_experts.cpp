#include "hf/config/config_experts.hpp"

#include <algorithm>

#include "hf/config/config_layers.hpp"

namespace moeloom {
namespace {

void read_sparse_layers(ConfigReader& reader, const MoeRule& rule, ModelConfig& config) {
  if (rule.sparse == SparseRule::kAfterFirst)
    config.first_k_dense_replace = reader.integer_or(rule.first_dense_key, rule.first_dense);
  if (rule.sparse == SparseRule::kInterval || rule.sparse == SparseRule::kList ||
      rule.sparse == SparseRule::kTypes)
    return read_sparse_list(reader, rule, config);
  if (rule.sparse != SparseRule::kStepAndList) return;
  config.decoder_sparse_step = reader.integer_or("decoder_sparse_step", 1);
  config.mlp_only_layers = reader.integers("mlp_only_layers");
  if (std::ssize(config.mlp_only_layers) <= std::max<Index>(config.num_hidden_layers, 0)) return;
  reader.refuse("mlp_only_layers names " + std::to_string(config.mlp_only_layers.size()) + " layers of " +
                std::to_string(config.num_hidden_layers));
  config.mlp_only_layers.clear();  // every layer would look through them
}

void read_groups(ConfigReader& reader, const GroupRule& rule, ModelConfig& config) {
  const std::string method = rule.by_method ? reader.text_or("topk_method", "greedy") : "";
  const Index groups = reader.optional_integer("n_group", rule.groups).value_or(1);
  const Index kept = reader.optional_integer("topk_group", rule.kept).value_or(1);
  if (method == "greedy") return;
  if (rule.by_method && method != "group_limited_greedy")
    reader.unsupported("topk_method", method, "greedy, group_limited_greedy");
  config.n_group = groups;
  config.topk_group = kept;
}

/// Cohere2: a softmax of the chosen logits, which norm_topk_prob does not change, or sigmoids of them.
void read_selection(ConfigReader& reader, ModelConfig& config) {
  const std::string function = reader.text_or("expert_selection_fn", "softmax");
  config.sigmoid_of_chosen = function == "sigmoid";
  if (function == "softmax") config.norm_topk_prob = false;
  if (function != "softmax" && function != "sigmoid")
    reader.unsupported("expert_selection_fn", function, "softmax, sigmoid");
}

void read_router(ConfigReader& reader, const MoeRule& rule, ModelConfig& config) {
  config.norm_topk_prob =
      rule.topk_norm == TopkNorm::kAlways || reader.boolean_or("norm_topk_prob", rule.topk_norm_fallback);
  if (rule.topk_norm == TopkNorm::kNever) config.norm_topk_prob = false;
  config.output_router_logits = rule.aux_loss_fallback && reader.boolean_or("output_router_logits", false);
  config.router_aux_loss_coef =
      rule.aux_loss_fallback ? reader.number_or("router_aux_loss_coef", *rule.aux_loss_fallback) : 0.0;
  config.hash_router = reader.boolean_or(kHashRouterKey, false);
  if (rule.scaling)
    config.routed_scaling_factor = reader.optional_number_or(rule.scaling_key, *rule.scaling).value_or(1);
  if (!rule.cap_key.empty()) config.router_logit_cap = reader.number_or(rule.cap_key, 0);
  if (rule.sigmoid_by_key) read_selection(reader, config);
  if (rule.groups) read_groups(reader, *rule.groups, config);
  if (!rule.corrected_key.empty()) config.correction_bias = reader.boolean_or(rule.corrected_key, true);
  if (!rule.least_sum_key.empty()) config.least_sum = reader.number_or(rule.least_sum_key, 1e-12);
  if (rule.router.weigh_by == WeighBy::kSoftmaxOfNear)
    config.router_jitter_noise = reader.number_or("router_jitter_noise", 0.01);
}

void read_shared_expert(ConfigReader& reader, const SharedExpertRule& rule, ModelConfig& config) {
  const Index experts = rule.counts_experts ? reader.integer_or(rule.width_key, rule.fallback) : 1;
  const Index width = rule.counts_experts ? config.moe_intermediate_size : reader.integer(rule.width_key);
  if (__builtin_mul_overflow(experts, width, &config.shared_expert_intermediate_size))
    config.shared_expert_intermediate_size = -1;
  if (config.shared_expert_intermediate_size < (rule.may_be_none ? 0 : 1))
    reader.refuse(rule.width_key + (rule.may_be_none
                                        ? " must be 0 or more, and no more than can be"
                                        : " must be at least 1: every layer with experts has a shared one"));
  if (!rule.averaged) return;
  const std::string strategy = reader.text_or("shared_expert_combination_strategy", "average");
  config.shared_average = strategy == "average";
  if (strategy != "average" && strategy != "sum")
    reader.unsupported("shared_expert_combination_strategy", strategy, "average, sum");
}

/// The family's name of a number, or another that a version of transformers takes for it, and writes: 4 and 5
/// call one number num_experts and num_local_experts, in turn, and some files have both, which must agree.
std::string key_of(ConfigReader& reader, const std::string& own, std::initializer_list<const char*> others) {
  std::string key = own;
  for (const std::string other : others) {
    if (other == own || !reader.has(other)) continue;
    if (!reader.has(key))
      key = other;
    else if (reader.integer(key) != reader.integer(other))
      reader.refuse(key + " = " + std::to_string(reader.integer(key)) + " contradicts " + other + " = " +
                    std::to_string(reader.integer(other)));
  }
  return key;
}

/// A number, or one a layer (HunYuan).
void read_top_k(ConfigReader& reader, const MoeRule& rule, ModelConfig& config) {
  const std::string key = key_of(reader, rule.top_k_key, {"num_experts_per_tok"});
  if (!rule.by_layer) {
    config.num_experts_per_tok = reader.integer(key);
    return;
  }
  const std::vector<Index> list =
      reader.integers_of_layers(key, std::clamp<Index>(config.num_hidden_layers, 1, 1 << 16));
  config.num_experts_per_tok = std::ranges::max(list);
  if (std::ranges::min(list) != config.num_experts_per_tok) config.layer_top_k = list;
}

void read_experts(ConfigReader& reader, const MoeRule& rule, ModelConfig& config) {
  if (!rule.enabled_key.empty() && !reader.boolean_or(rule.enabled_key, false))
    reader.refuse(rule.enabled_key + " must be true: of this family the models with experts run");
  const auto count = [&](const std::string& key) {
    return rule.by_layer ? reader.integer_of_all_layers(key, config.num_hidden_layers) : reader.integer(key);
  };
  config.num_experts = count(key_of(reader, rule.experts_key, {"num_experts", "num_local_experts"}));
  read_sparse_layers(reader, rule, config);
  read_router(reader, rule, config);
  if (config.num_experts > 0) {
    read_top_k(reader, rule, config);
    config.moe_intermediate_size = reader.integer(key_of(reader, rule.width_key, {"expert_hidden_dim"}));
    if (rule.shared) read_shared_expert(reader, *rule.shared, config);
  }
  reader.skip({rule.top_k_key, rule.width_key});
  if (rule.shared) reader.skip({rule.shared->width_key});
}

/// Whether a layer of the stated shape is dense, as far as the keys read so far can say.
bool any_dense(const ModelConfig& config) {
  if (config.decoder_sparse_step < 1) return false;  // told elsewhere
  constexpr Index kMostLayers = Index{1} << 16;      // more are refused later
  const Index layers = std::min(config.num_hidden_layers, kMostLayers);
  for (Index layer = 0; layer < layers; ++layer)
    if (!config.is_sparse(layer)) return true;
  return false;
}

}  // namespace

void read_feed_forward(ConfigReader& reader, const Family& family, ModelConfig& config) {
  config.num_experts = 0;
  config.output_router_logits = false;
  config.router_aux_loss_coef = 0;
  if (family.moe) read_experts(reader, *family.moe, config);
  const std::string& width_key = family.other_width_key.empty() || reader.has(family.width_key)
                                     ? family.width_key
                                     : family.other_width_key;
  config.intermediate_size = any_dense(config) || family.side_by_side
                                 ? reader.integer(width_key)
                                 : reader.optional_integer(width_key, 0).value_or(0);
  if (!family.mlp_bias_key.empty()) config.mlp_bias = reader.boolean_or(family.mlp_bias_key, false);
}

}  // namespace moeloom
