// Specifications of attention layers of every kind, small.
#pragma once

#include "model/parts/layer_spec.hpp"

#include <functional>
#include <ostream>
#include <string>
#include <vector>

namespace moeloom::testing {

inline constexpr Index kWidth = 20;
inline const std::string kPrefix = "layer.self_attn.";

struct AttentionCase {
  std::string name;
  AttentionSpec spec;
  RmsNormSettings norm;
  bool output_norm = false;
  Index rotary_dim = 8;
  bool input_norm = true;
  NormKind kind = NormKind::kRms;
  float residual_scale = 1;
};

inline void PrintTo(const AttentionCase& c, std::ostream* out) {
  *out << c.name;
}

inline AttentionSpec projected(Index heads, Index kv_heads, Index head_dim) {
  AttentionSpec spec;
  spec.prefix = kPrefix;
  spec.hidden_size = kWidth;
  spec.heads = heads;
  spec.kv_heads = kv_heads;
  spec.head_dim = spec.value_dim = head_dim;
  spec.norm = {.eps = 1e-5f};
  spec.scale = 0.4f;
  return spec;
}

inline AttentionSpec latent(Index q_rank) {
  AttentionSpec spec = projected(3, 3, 10);
  spec.value_dim = 7;
  spec.latent =
      LatentSpec{.q_rank = q_rank, .kv_rank = 9, .nope_dim = 6, .rope_dim = 4, .norm = {.eps = 1e-6f}};
  return spec;
}

inline AttentionSpec with(AttentionSpec spec, const std::function<void(AttentionSpec&)>& edit) {
  edit(spec);
  return spec;
}

inline std::vector<AttentionCase> attention_cases() {
  const AttentionSpec plain = projected(4, 2, 8);
  return {
      {"plain", plain, {}},
      {"norm_per_head", with(plain, [](auto& s) { s.qk_norm = QkNorm::kPerHead; }), {}},
      {"norm_of_the_whole_width", with(plain, [](auto& s) { s.qk_norm = QkNorm::kWholeWidth; }), {}},
      {"biases", with(plain, [](auto& s) { s.qkv_bias = s.output_bias = true; }), {}},
      {"bias_of_qkv_alone", with(plain, [](auto& s) { s.qkv_bias = true; }), {}},
      {"partial_rotation_of_odd_heads", projected(3, 1, 9), {}, false, 4},
      {"window_and_everything_of_gemma",
       with(plain,
            [](auto& s) {
              s.window = 4;
              s.qk_norm = QkNorm::kPerHead;
              s.norm.weight_offset = 1;
            }),
       {.eps = 1e-6f, .weight_offset = 1},
       true},
      {"output_norm_and_bias", with(plain, [](auto& s) { s.output_bias = true; }), {}, true},
      {"one_head", projected(1, 1, 8), {}},
      {"sinks", with(plain, [](auto& s) { s.sinks = true; }), {}},
      {"sinks_and_a_window_of_gpt_oss",
       with(plain,
            [](auto& s) {
              s.sinks = s.qkv_bias = s.output_bias = true;
              s.window = 4;
            }),
       {}},
      {"chunks", with(plain, [](auto& s) { s.chunk = 3; }), {}},
      {"chunks_and_norm_without_weight_after_rope_of_llama4",
       with(plain,
            [](auto& s) {
              s.chunk = 4;
              s.qk_norm = QkNorm::kPerHead;
              s.qk_norm_after_rope = true;
              s.qk_norm_weight = false;
            }),
       {}},
      {"temperature_without_rope_of_llama4",
       with(plain,
            [](auto& s) {
              s.rope = kNoRope;
              s.temperature = QueryTemperature{.scale = 0.7, .floor = 3};
            }),
       {}},
      {"norm_after_rope_of_hunyuan",
       with(plain,
            [](auto& s) {
              s.qk_norm = QkNorm::kPerHead;
              s.qk_norm_after_rope = true;
            }),
       {}},
      {"whole_norm_without_weight_and_temperature",
       with(plain,
            [](auto& s) {
              s.qk_norm = QkNorm::kWholeWidth;
              s.qk_norm_weight = false;
              s.temperature = QueryTemperature{.scale = 0.5, .floor = 2};
            }),
       {}},
      {"gate", with(plain, [](auto& s) { s.gate = OutputGate{.with_query = true}; }), {}},
      {"gate_norm_and_partial_rotation_of_qwen3_next",
       with(plain,
            [](auto& s) {
              s.gate = OutputGate{.with_query = true};
              s.qkv_bias = s.output_bias = true;
              s.qk_norm = QkNorm::kPerHead;
              s.norm.weight_offset = 1;
            }),
       {.eps = 1e-6f, .weight_offset = 1},
       false,
       4},
      {"gate_and_sinks_in_chunks",
       with(plain,
            [](auto& s) {
              s.gate = OutputGate{.with_query = true};
              s.sinks = true;
              s.chunk = 5;
              s.window = 3;
            }),
       {}},
      {"gate_of_its_own_of_afmoe",
       with(plain,
            [](auto& s) {
              s.gate = OutputGate{};
              s.qk_norm = QkNorm::kPerHead;
            }),
       {}},
      {"softplus_gate_an_element_of_laguna",
       with(plain,
            [](auto& s) {
              s.gate = OutputGate{.function = GateFunction::kSoftplus};
              s.qkv_bias = s.output_bias = true;
            }),
       {}},
      {"softplus_gate_a_head_of_laguna",
       with(plain,
            [](auto& s) {
              s.gate = OutputGate{.function = GateFunction::kSoftplus, .per_head = true};
              s.window = 4;
            }),
       {}},
      {"gate_of_values_of_another_width",
       with(plain,
            [](auto& s) {
              s.gate = OutputGate{};
              s.value_dim = 5;
            }),
       {}},
      {"narrow_scaled_values_sinks_and_a_window_of_mimo",
       with(plain,
            [](auto& s) {
              s.value_dim = 5;
              s.value_scale = 0.7f;
              s.sinks = true;
              s.window = 4;
            }),
       {},
       false,
       6},
      {"wide_values", with(plain, [](auto& s) { s.value_dim = 11; }), {}},
      {"normed_values_of_gemma4",
       with(plain,
            [](auto& s) {
              s.qk_norm = QkNorm::kPerHead;
              s.value_norm = true;
              s.norm.eps = 0.1f;
              s.window = 4;
            }),
       {},
       true},
      {"normed_scaled_values_without_norm_of_keys",
       with(plain,
            [](auto& s) {
              s.value_norm = true;
              s.value_scale = 1.3f;
              s.value_dim = 6;
            }),
       {}},
      {"keys_are_values_of_gemma4",
       with(plain,
            [](auto& s) {
              s.qk_norm = QkNorm::kPerHead;
              s.keys_are_values = s.value_norm = true;
              s.qkv_bias = true;
              s.norm.weight_offset = 1;  // of q and k alone
            }),
       {}},
      {"keys_are_values_as_they_come",
       with(plain,
            [](auto& s) {
              s.qk_norm = QkNorm::kWholeWidth;
              s.keys_are_values = true;
              s.value_scale = 0.6f;
            }),
       {}},
      {"layer_norm_without_bias_of_cohere2",
       plain,
       {.eps = 1e-5f},
       false,
       8,
       true,
       NormKind::kLayerWithoutBias},
      {"latent_with_a_gate", with(latent(5), [](auto& s) { s.gate = OutputGate{}; }), {}, false, 4},
      {"no_norm_before_of_flex_olmo",
       with(plain, [](auto& s) { s.qk_norm = QkNorm::kWholeWidth; }),
       {},
       true,
       8,
       false},
      {"neither_norm", plain, {}, false, 8, false},
      {"layer_norm_of_phimoe",
       with(plain, [](auto& s) { s.qkv_bias = s.output_bias = true; }),
       {.eps = 1e-5f},
       false,
       8,
       true,
       NormKind::kLayer},
      {"residual_scale_of_granite", plain, {}, false, 8, true, NormKind::kRms, 0.22f},
      {"residual_scale_behind_a_norm", plain, {}, true, 8, true, NormKind::kRms, 0.22f},
      {"latent_with_sinks", with(latent(5), [](auto& s) { s.sinks = true; }), {}, false, 4},
      {"latent", latent(5), {}, false, 4},
      {"latent_without_q_rank", latent(0), {}, false, 4},
      {"latent_with_biases",
       with(latent(5), [](auto& s) { s.qkv_bias = s.output_bias = true; }),
       {},
       false,
       4},
      {"latent_with_a_window", with(latent(5), [](auto& s) { s.window = 3; }), {}, false, 4},
  };
}

}  // namespace moeloom::testing
