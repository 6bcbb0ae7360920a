#include "plan/cost/step_flops.hpp"

#include "plan/cost/step_cost.hpp"

namespace moeloom {

double moe_product_flops(const ModelConfig& config, Index tokens) {
  const auto of_a_token = static_cast<double>(
      config.hidden_size *
      (18 * config.num_experts_per_tok * config.moe_intermediate_size + 6 * config.num_experts));
  return static_cast<double>(tokens) * of_a_token;
}

double step_flops(const ModelConfig& config, Index tokens, Index sequence_length) {
  double flops = head_flops(config, tokens);
  for (Index i = 0; i < config.num_hidden_layers; ++i) {
    const LayerSpec layer = config.layer(i);
    flops += mixer_product_flops(layer.mixer, tokens) + mixing_flops(layer.mixer, tokens, sequence_length) +
             mlp_product_flops(layer, tokens) + (layer.moe ? moe_product_flops(config, tokens) : 0);
  }
  return flops;
}

}  // namespace moeloom
