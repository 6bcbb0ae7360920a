// Mixers without attention, small, with the parameters that a model of their family has.
#pragma once

#include "model/hf/parameters/parameter_specs.hpp"
#include "model/mixer/mixer_layer.hpp"
#include "moeloom/model/hf/config.hpp"

#include <ostream>
#include <string>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {

/// A model of one layer, whose mixer is the family's other one; `keys`: of config.json, that say its sizes.
inline ModelConfig one_layer(const std::string& family, const std::string& layer_type, Index hidden_size,
                             const std::string& keys) {
  const std::string text = R"({"model_type": ")" + family + R"(", "layer_types": [")" + layer_type +
                           R"("], "hidden_size": )" + std::to_string(hidden_size) + R"(, "vocab_size": 8,
    "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 8,
    "intermediate_size": 8, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 4,
    "pad_token_id": null, )" +
                           keys + "}";
  return ModelConfig::from(Document::parse(text, family));
}
inline ModelConfig short_conv_model(Index hidden_size, const std::string& keys) {
  return one_layer("lfm2_moe", "conv", hidden_size, keys);
}
inline ModelConfig delta_net_model(Index hidden_size, const std::string& keys) {
  return one_layer("qwen3_next", "linear_attention", hidden_size,
                   R"("shared_expert_intermediate_size": 4, )" + keys);
}

/// The parameters of the first layer's mixer, without its norms.
inline std::vector<ParameterSpec> mixer_parameters(const ModelConfig& config) {
  const std::string prefix = std::visit([](const auto& spec) { return spec.prefix; }, config.layer(0).mixer);
  std::vector<ParameterSpec> specs;
  for (ParameterSpec& spec : parameter_specs(config, {0, config.num_experts}))
    if (spec.name.starts_with(prefix)) specs.push_back(std::move(spec));
  return specs;
}

struct MixerCase {
  std::string name;
  ModelConfig config;
};

inline void PrintTo(const MixerCase& c, std::ostream* out) {
  *out << c.name;
}

inline std::vector<MixerCase> mixer_cases() {
  return {
      {"short_conv", short_conv_model(20, R"("conv_L_cache": 3)")},
      {"short_conv_with_biases_over_one_token",
       short_conv_model(20, R"("conv_L_cache": 1, "conv_bias": true)")},
      {"short_conv_with_biases", short_conv_model(20, R"("conv_L_cache": 4, "conv_bias": true)")},
      {"delta_net", delta_net_model(20, R"("linear_num_key_heads": 2, "linear_num_value_heads": 2,
         "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_conv_kernel_dim": 4)")},
      {"delta_net_of_groups", delta_net_model(20, R"("linear_num_key_heads": 2, "linear_num_value_heads": 6,
         "linear_key_head_dim": 10, "linear_value_head_dim": 6, "linear_conv_kernel_dim": 2)")},
  };
}

/// Random weights of a size at which every part matters, and gates that are neither open nor closed.
inline void load_random(const ParameterStore& store) {
  for (const Parameter& p : store.parameters())
    copy(random_matrix(p.spec.rows, p.spec.cols, stream_of(p.spec.name), 0.3), p.value);
}

inline KernelTable fused_kernels() {
  KernelTable table;
  table.rmsnorm = fused_rmsnorm();
  return table;
}

}  // namespace moeloom::testing
