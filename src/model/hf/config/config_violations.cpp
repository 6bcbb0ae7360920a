#include "model/hf/family.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/violations.hpp"
#include "moeloom/model/hf/config.hpp"

#include <algorithm>
#include <cmath>
#include <set>

namespace moeloom {
namespace {

constexpr Index kLargestSize = Index{1} << 24;
constexpr Index kMostLayers = Index{1} << 12;
constexpr Index kMostHeads = Index{1} << 16;
constexpr Index kMostExperts = Index{1} << 16;
// Of all layers: ten times the largest model known. Each has tensors with names, so that a config.json of 300
// bytes could otherwise ask for any amount of memory.
constexpr Index kMostExpertsInAll = Index{1} << 18;
constexpr Index kLongestSequence = Index{1} << 31;
constexpr double kMostParameters = 1e15;  // far below where sizes in bytes leave 64 bits

std::string equation(const std::string& key, Index value) {
  return key + " = " + std::to_string(value);
}

/// Sizes of latent attention; heads share no keys in it.
void check_latent(const ModelConfig& c, Violations& violations) {
  violations.unless_between("q_lora_rank", c.q_lora_rank, 0, kLargestSize);
  violations.unless_between("kv_lora_rank", c.kv_lora_rank, 1, kLargestSize);
  violations.unless_between("qk_nope_head_dim", c.qk_nope_head_dim, 1, kMostHeads);
  violations.unless_between("v_head_dim", c.v_head_dim, 1, kMostHeads);
  violations.unless(c.num_key_value_heads == c.num_attention_heads,
                    equation("num_key_value_heads", c.num_key_value_heads) + " must be " +
                        equation("num_attention_heads", c.num_attention_heads) +
                        ": in latent attention each head has keys of its own");
}

void check_rotary(const ModelConfig& c, Violations& violations) {
  const std::string name = c.family().latent_attention      ? "qk_rope_head_dim"
                           : c.partial_rotary_factor == 1.0 ? "head_dim"
                                                            : "head_dim * partial_rotary_factor";
  // A part of a head that is odd turns with one element more, as in HF.
  const Index most_odd = c.family().latent_attention ? 0 : c.head_dim - 1;
  for (const RopeSettings& rope : c.ropes())
    violations.unless(
        rope.rotary_dim >= 2 && (rope.rotary_dim % 2 == 0 || rope.rotary_dim <= most_odd),
        equation(name, rope.rotary_dim) + " must be even: rotary embedding turns pairs of elements");
  violations.unless(c.partial_rotary_factor > 0 && c.partial_rotary_factor <= 1,
                    "partial_rotary_factor must lie in (0, 1]");
  violations.unless_positive("rope_theta", c.rope_theta);
  for (const double theta : c.layer_rope_theta) violations.unless_not_negative("layer_rope_theta", theta);
  if (c.window_rope) {
    violations.unless_positive("rope_theta of layers with a window", c.window_rope->theta);
    violations.unless(c.window_rope->partial_rotary_factor > 0 && c.window_rope->partial_rotary_factor <= 1,
                      "partial_rotary_factor of layers with a window must lie in (0, 1]");
  }
  violations.unless_not_negative("query_pre_attn_scalar^-0.5", c.score_scale);
}

/// Each reads the keys and values of an earlier layer that has its own, with a window as it has or without.
void check_shared_keys(const ModelConfig& c, Violations& violations) {
  violations.unless_between("num_kv_shared_layers", c.num_kv_shared_layers, 0, c.num_hidden_layers - 1);
  if (c.num_kv_shared_layers < 0 || c.num_kv_shared_layers >= c.num_hidden_layers) return;
  const Index own = c.num_hidden_layers - c.num_kv_shared_layers;
  for (Index layer = own; layer < c.num_hidden_layers; ++layer) {
    const auto lends = [&](Index other) { return (c.window(other) > 0) == (c.window(layer) > 0); };
    Index lender = own - 1;
    while (lender >= 0 && !lends(lender)) --lender;
    if (lender >= 0 && (c.head_size(lender) != c.head_size(layer) || c.kv_heads(lender) != c.kv_heads(layer)))
      return violations.unless(false, "layer " + std::to_string(layer) + " reads the keys of layer " +
                                          std::to_string(lender) + ", whose heads differ");
    if (lender < 0)
      return violations.unless(false, equation("num_kv_shared_layers", c.num_kv_shared_layers) + ": layer " +
                                          std::to_string(layer) + " has no layer of its kind before them");
  }
}

/// Of each layer, where they differ.
void check_heads(const ModelConfig& c, Violations& violations) {
  const bool alike = c.layer_heads.empty() && c.layer_kv_heads.empty() && c.layer_head_dims.empty();
  for (Index layer = 0; layer < (alike ? 1 : c.num_hidden_layers); ++layer) {
    const Index heads = c.heads(layer), kv_heads = c.kv_heads(layer);
    violations.unless_between("num_attention_heads", heads, 1, kMostHeads);
    violations.unless_between("num_key_value_heads", kv_heads, 1, kMostHeads);
    violations.unless_between("head_dim", c.head_size(layer), 2, kMostHeads);
    if (heads > 0 && kv_heads > 0)
      violations.unless(heads % kv_heads == 0, equation("num_key_value_heads", kv_heads) +
                                                   " does not divide " +
                                                   equation("num_attention_heads", heads) +
                                                   (alike ? "" : " in layer " + std::to_string(layer)));
    if (!violations.list().empty()) return;  // the same of each layer otherwise
  }
  if (c.value_dim != 0) violations.unless_between("v_head_dim", c.value_dim, 1, kMostHeads);
}

/// Of the mixer that is not attention.
void check_other_mixer(const ModelConfig& c, Violations& violations) {
  constexpr Index kMostTaps = 256;
  const bool short_conv = c.family().other_mixer == OtherMixer::kShortConv;
  violations.unless_between(short_conv ? "conv_L_cache" : "linear_conv_kernel_dim", c.conv_taps, 1,
                            kMostTaps);
  if (short_conv) return;
  violations.unless_between("linear_num_key_heads", c.linear_num_key_heads, 1, kMostHeads);
  violations.unless_between("linear_num_value_heads", c.linear_num_value_heads, 1, kMostHeads);
  violations.unless_between("linear_key_head_dim", c.linear_key_head_dim, 1, kMostHeads);
  violations.unless_between("linear_value_head_dim", c.linear_value_head_dim, 1, kMostHeads);
  if (c.linear_num_key_heads > 0)
    violations.unless(c.linear_num_value_heads % c.linear_num_key_heads == 0,
                      equation("linear_num_key_heads", c.linear_num_key_heads) + " does not divide " +
                          equation("linear_num_value_heads", c.linear_num_value_heads));
}

/// Each has a table of angles, and is looked for by every layer.
void check_number_of_ropes(const ModelConfig& c, Violations& violations) {
  constexpr std::size_t kMostRopes = 64;
  const std::set<double> thetas(c.layer_rope_theta.begin(), c.layer_rope_theta.end());
  const std::set<Index> dims(c.layer_head_dims.begin(), c.layer_head_dims.end());
  violations.unless(thetas.size() <= kMostRopes && dims.size() <= kMostRopes,
                    "layers turn in more than " + std::to_string(kMostRopes) + " different ways");
}

void check_attention(const ModelConfig& c, Violations& violations) {
  check_heads(c, violations);
  check_number_of_ropes(c, violations);
  if (!violations.list().empty()) return;
  check_rotary(c, violations);
  check_shared_keys(c, violations);
  if (c.family().latent_attention) check_latent(c, violations);
}

/// Of each layer, 0 for all earlier tokens; caches are as long, and their ends are sums with positions.
void check_spans(const std::string& key, const std::vector<Index>& spans, Violations& violations) {
  if (spans.empty()) return;
  const auto [least, most] = std::ranges::minmax(spans);
  violations.unless_between(key, least < 0 ? least : most, 0, kLongestSequence);
}

/// As the family's config.json calls it.
std::string experts_key(const ModelConfig& c) {
  return c.family().moe ? c.family().moe->experts_key : "num_experts";
}
std::string width_key(const ModelConfig& c) {
  return c.family().moe ? c.family().moe->width_key : "moe_intermediate_size";
}

/// Groups of equal size, and enough experts in those that are kept.
void check_groups(const ModelConfig& c, Violations& violations) {
  violations.unless_between("n_group", c.n_group, 1, kMostExperts);
  violations.unless_between("topk_group", c.topk_group, 1, c.n_group);
  if (c.n_group < 1 || c.topk_group < 1) return;
  violations.unless(c.num_experts % c.n_group == 0, equation("n_group", c.n_group) + " does not divide " +
                                                        equation(experts_key(c), c.num_experts));
  if (c.num_experts % c.n_group != 0 || c.topk_group > c.n_group) return;
  const bool sums_two = c.family().moe->router.group_worth == GroupWorth::kSumOfTwoBest;
  violations.unless(!sums_two || c.num_experts / c.n_group >= 2,
                    equation("n_group", c.n_group) + " leaves groups of one expert, and a group's score is " +
                        "the sum of its two best");
  const Index kept = c.num_experts / c.n_group * c.topk_group;
  violations.unless(c.num_experts_per_tok <= kept, equation("num_experts_per_tok", c.num_experts_per_tok) +
                                                       " is more than the " + std::to_string(kept) +
                                                       " experts of " + equation("topk_group", c.topk_group) +
                                                       " groups");
}

void check_experts(const ModelConfig& c, Violations& violations) {
  violations.unless_between(width_key(c), c.moe_intermediate_size, 1, kLargestSize);
  violations.unless_between("shared_expert_intermediate_size", c.shared_expert_intermediate_size, 0,
                            kLargestSize);
  violations.unless(std::isfinite(c.routed_scaling_factor), "routed_scaling_factor must be finite");
  const auto check_top_k = [&](Index top_k) {
    violations.unless(top_k >= 1 && top_k <= c.num_experts, equation(c.family().moe->top_k_key, top_k) +
                                                                " must lie between 1 and " +
                                                                equation(experts_key(c), c.num_experts));
  };
  check_top_k(c.num_experts_per_tok);
  if (!c.layer_top_k.empty()) check_top_k(std::ranges::min(c.layer_top_k));
  if (c.n_group != 1 || c.topk_group != 1) check_groups(c, violations);
}

void check_feed_forward(const ModelConfig& c, Violations& violations) {
  violations.unless_between(experts_key(c), c.num_experts, 0, kMostExperts);
  if (c.num_experts > 0)
    violations.unless(c.num_hidden_layers <= kMostExpertsInAll / c.num_experts,
                      equation("num_hidden_layers", c.num_hidden_layers) + " times " +
                          equation(experts_key(c), c.num_experts) + " is more than " +
                          std::to_string(kMostExpertsInAll) + " experts in all");
  violations.unless_between("decoder_sparse_step", c.decoder_sparse_step, 1, kLargestSize);
  violations.unless_between(c.family().moe ? c.family().moe->first_dense_key : "first_k_dense_replace",
                            c.first_k_dense_replace, 0, kLargestSize);
  for (const Index layer : c.mlp_only_layers)
    violations.unless(layer >= 0 && layer < c.num_hidden_layers,
                      "mlp_only_layers names layer " + std::to_string(layer) + ", but " +
                          equation("num_hidden_layers", c.num_hidden_layers) + " counts from 0");
  violations.unless(activation_named(c.hidden_act).has_value(),
                    c.family().activation_key + " = \"" + c.hidden_act +
                        "\" is not supported; known: silu, swish, gelu, gelu_new, gelu_pytorch_tanh");
  if (c.num_experts > 0) check_experts(c, violations);
  const bool has_mlp = c.num_experts == 0 || c.family().side_by_side || c.decoder_sparse_step > 1 ||
                       !c.mlp_only_layers.empty() || c.first_k_dense_replace > 0 ||
                       (c.sparse_layers && std::ssize(*c.sparse_layers) < c.num_hidden_layers);
  violations.unless_between("intermediate_size", c.intermediate_size, has_mlp ? 1 : 0, kLargestSize);
}

/// The scaling's own numbers: a table of them is made, or says why it cannot be.
void check_ropes(const ModelConfig& c, Violations& violations) {
  try {
    for (const RopeSettings& rope : c.ropes()) make_rope_table(1, rope);
  } catch (const ShapeError& error) {
    violations.unless(false, std::string("rope_scaling or rope_parameters: ") + error.what());
  }
}

/// A file keeps gated queries and a delta net's projections head by head: each head is some tensors'
/// stretches.
void check_heads_in_all(const ModelConfig& c, const std::string& key, Index heads, Violations& violations) {
  constexpr Index kMostHeadsInAll = Index{1} << 16;
  if (heads > 0)
    violations.unless(c.num_hidden_layers <= kMostHeadsInAll / heads,
                      equation("num_hidden_layers", c.num_hidden_layers) + " times " + equation(key, heads) +
                          " is more than " + std::to_string(kMostHeadsInAll) + " heads in all");
}

/// A product of sizes of which 64 bits need not hold it.
double product(Index a, Index b) {
  return static_cast<double>(a) * static_cast<double>(b);
}

/// Of mixers that are not attention.
double most_mixer_parameters(const ModelConfig& c) {
  const double d = static_cast<double>(c.hidden_size), taps = static_cast<double>(c.conv_taps);
  if (c.family().other_mixer == OtherMixer::kShortConv) return d * (4 * d + taps + 6);
  const double keys = product(c.linear_num_key_heads, c.linear_key_head_dim);
  const double values = product(c.linear_num_value_heads, c.linear_value_head_dim);
  return d * (2 * keys + 3 * values + 2 * static_cast<double>(c.linear_num_value_heads)) +
         taps * (2 * keys + values);
}

/// q, k, v, the output and its gate, as wide as the heads of this layer make them.
double most_attention_parameters(const ModelConfig& c, Index layer) {
  const double d = static_cast<double>(c.hidden_size);
  const Index size = c.head_size(layer);
  const Index value = c.family().latent_attention ? c.v_head_dim : c.value_dim > 0 ? c.value_dim : size;
  const double queries = product(c.heads(layer), size), outputs = product(c.heads(layer), value);
  const double keys = product(c.kv_heads(layer), size), values = product(c.kv_heads(layer), value);
  const double latents = c.family().latent_attention ? static_cast<double>(c.q_lora_rank + c.kv_lora_rank) *
                                                           (d + 2.0 * (queries + outputs))
                                                     : 0.0;
  return latents + d * (queries + outputs + keys + values + (c.family().gate ? queries : 0.0));
}

double most_feed_forward_parameters(const ModelConfig& c) {
  const double mlp = 2.0 * static_cast<double>(c.intermediate_size);  // twice as wide where keys are lent
  const double experts = c.num_experts > 0 ? product(c.moe_intermediate_size, c.num_experts) +
                                                 static_cast<double>(c.shared_expert_intermediate_size)
                                           : 0.0;
  return 3.0 * static_cast<double>(c.hidden_size) * (mlp + experts);
}

double most_parameters(const ModelConfig& c) {
  const double d = static_cast<double>(c.hidden_size);
  const double layer = most_mixer_parameters(c) + most_feed_forward_parameters(c);
  double attention = 0;
  for (Index l = 0; l < c.num_hidden_layers; ++l) attention += most_attention_parameters(c, l);
  const double layers = static_cast<double>(c.num_hidden_layers);
  const double of_layers = static_cast<double>(c.hidden_size_per_layer_input) * layers *
                           (static_cast<double>(c.vocab_size_per_layer_input) + 3.0 * d);
  return 2.0 * d * static_cast<double>(c.vocab_size) + layers * layer + attention + of_layers;
}

}  // namespace

std::vector<std::string> config_violations(const ModelConfig& config) {
  Violations violations;
  violations.unless_between("vocab_size", config.vocab_size, 1, kLargestSize);
  violations.unless_between("hidden_size", config.hidden_size, 1, kLargestSize);
  violations.unless_between("num_hidden_layers", config.num_hidden_layers, 1, kMostLayers);
  violations.unless_between("max_position_embeddings", config.max_position_embeddings, 1, kLongestSequence);
  const Family* family = find_family(config.model_type);
  if (!family || !family->refusal.empty())
    return {"model_type = \"" + config.model_type + "\" is not supported; known: " + known_families()};
  if (!violations.list().empty()) return violations.list();  // lists of layers are as long as these say
  violations.unless(
      family->moe || config.num_experts == 0,
      equation("num_experts", config.num_experts) + " must be 0: " + config.model_type + " has no experts");
  check_attention(config, violations);
  if (family->other_mixer != OtherMixer::kNone) check_other_mixer(config, violations);
  if (family->gate && family->gate->gate.with_query)
    check_heads_in_all(config, "num_attention_heads", config.num_attention_heads, violations);
  check_heads_in_all(config, "linear_num_key_heads", config.linear_num_key_heads, violations);
  check_spans("sliding_window", config.windows, violations);
  check_spans("attention_chunk_size", config.chunks, violations);
  violations.unless_between("num_nextn_predict_layers", config.num_nextn_predict_layers, 0, 64);
  check_feed_forward(config, violations);
  violations.unless_not_negative("router_aux_loss_coef", config.router_aux_loss_coef);
  violations.unless_not_negative("initializer_range", config.initializer_range);
  violations.unless_positive(family->eps_key, config.rms_norm_eps);
  violations.unless_positive("logits_scaling", config.logits_scaling);
  violations.unless_not_negative("final_logit_softcapping", config.logit_cap);
  violations.unless_not_negative("router logits' cap", config.router_logit_cap);
  violations.unless(std::isfinite(static_cast<float>(config.value_scale)),
                    "attention_value_scale must be finite in fp32");
  violations.unless_between("hidden_size_per_layer_input", config.hidden_size_per_layer_input, 0,
                            kLargestSize);
  if (config.hidden_size_per_layer_input > 0)
    violations.unless_between("vocab_size_per_layer_input", config.vocab_size_per_layer_input,
                              config.vocab_size, kLargestSize);
  violations.unless_not_negative("moe_norm_min", config.least_sum);
  violations.unless_not_negative("router_jitter_noise", config.router_jitter_noise);
  violations.unless(std::isfinite(static_cast<float>(config.embedding_multiplier)),
                    "embedding_multiplier must be finite in fp32");
  violations.unless(std::isfinite(static_cast<float>(config.residual_multiplier)),
                    "residual_multiplier must be finite in fp32");
  if (violations.list().empty()) check_ropes(config, violations);
  if (violations.list().empty())
    violations.unless(most_parameters(config) <= kMostParameters,
                      "the model would have more than 1e15 parameters");
  return violations.list();
}

}  // namespace moeloom
