#include "moeloom/model/config.hpp"

#include "moeloom/base/violations.hpp"
#include "moeloom/model/parameters.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kLargestSize = Index{1} << 24;
constexpr Index kMostLayers = Index{1} << 16;
constexpr double kMostParameters = 1e15;  // far below where sizes in bytes leave 64 bits

Index elements(const ParameterSpec& spec) {
  return spec.rows * spec.cols;
}

std::string equation(const std::string& key, Index value) {
  return key + " = " + std::to_string(value);
}

void check_attention(const ModelConfig& c, Violations& violations) {
  violations.unless_between("num_attention_heads", c.num_attention_heads, 1, kMostLayers);
  violations.unless_between("num_key_value_heads", c.num_key_value_heads, 1, kMostLayers);
  violations.unless_between("head_dim", c.head_dim, 2, kMostLayers);
  violations.unless(c.head_dim % 2 == 0, equation("head_dim", c.head_dim) +
                                             " must be even: rotary embedding turns pairs of elements");
  if (c.num_attention_heads > 0 && c.num_key_value_heads > 0)
    violations.unless(c.num_attention_heads % c.num_key_value_heads == 0,
                      equation("num_key_value_heads", c.num_key_value_heads) + " does not divide " +
                          equation("num_attention_heads", c.num_attention_heads));
}

void check_feed_forward(const ModelConfig& c, Violations& violations) {
  violations.unless_between("num_experts", c.num_experts, 0, kMostLayers);
  violations.unless_between("decoder_sparse_step", c.decoder_sparse_step, 1, kLargestSize);
  for (const Index layer : c.mlp_only_layers)
    violations.unless(layer >= 0 && layer < c.num_hidden_layers,
                      "mlp_only_layers names layer " + std::to_string(layer) + ", but " +
                          equation("num_hidden_layers", c.num_hidden_layers) + " counts from 0");
  if (c.num_experts > 0) {
    violations.unless_between("moe_intermediate_size", c.moe_intermediate_size, 1, kLargestSize);
    violations.unless(c.num_experts_per_tok >= 1 && c.num_experts_per_tok <= c.num_experts,
                      equation("num_experts_per_tok", c.num_experts_per_tok) + " must lie between 1 and " +
                          equation("num_experts", c.num_experts));
  }
  if (c.num_experts == 0 || c.decoder_sparse_step > 1 || !c.mlp_only_layers.empty())
    violations.unless_between("intermediate_size", c.intermediate_size, 1, kLargestSize);
}

double most_parameters(const ModelConfig& c) {
  const double d = static_cast<double>(c.hidden_size);
  const double layer =
      2.0 * d * static_cast<double>(c.attention_width() + c.kv_width()) +
      3.0 * d * static_cast<double>(c.intermediate_size) +
      3.0 * d * static_cast<double>(c.moe_intermediate_size) * static_cast<double>(c.num_experts);
  return 2.0 * d * static_cast<double>(c.vocab_size) + static_cast<double>(c.num_hidden_layers) * layer;
}

}  // namespace

bool ModelConfig::is_sparse(Index layer) const {
  return num_experts > 0 && (layer + 1) % decoder_sparse_step == 0 &&
         std::ranges::find(mlp_only_layers, layer) == mlp_only_layers.end();
}

bool ModelConfig::has_experts() const {
  for (Index layer = 0; layer < num_hidden_layers; ++layer)
    if (is_sparse(layer)) return true;
  return false;
}

Index ModelConfig::total_parameters() const {
  Index sum = 0;
  for (const ParameterSpec& spec : parameter_specs(*this, {0, num_experts})) sum += elements(spec);
  return sum;
}

Index ModelConfig::active_parameters() const {
  Index sum = 0;
  for (const ParameterSpec& spec : parameter_specs(*this, {0, num_experts}))
    sum += spec.placement == Placement::kExperts ? elements(spec) / num_experts * num_experts_per_tok
                                                 : elements(spec);
  return sum;
}

std::vector<std::string> config_violations(const ModelConfig& config) {
  Violations violations;
  violations.unless_between("vocab_size", config.vocab_size, 1, kLargestSize);
  violations.unless_between("hidden_size", config.hidden_size, 1, kLargestSize);
  violations.unless_between("num_hidden_layers", config.num_hidden_layers, 1, kMostLayers);
  violations.unless_between("max_position_embeddings", config.max_position_embeddings, 1, Index{1} << 31);
  check_attention(config, violations);
  check_feed_forward(config, violations);
  violations.unless_not_negative("router_aux_loss_coef", config.router_aux_loss_coef);
  violations.unless_not_negative("initializer_range", config.initializer_range);
  violations.unless_positive("rms_norm_eps", config.rms_norm_eps);
  violations.unless_positive("rope_theta", config.rope_theta);
  if (violations.list().empty())
    violations.unless(most_parameters(config) <= kMostParameters,
                      "the model would have more than 1e15 parameters");
  return violations.list();
}

}  // namespace moeloom
