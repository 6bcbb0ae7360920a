// Attention layers of every kind, small, with random weights: what the tests of the layer and of its heads
// share.
#pragma once

#include "model/mixer/mixer_layer.hpp"

#include <cmath>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "support/attention_reference.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {

inline constexpr Index kWidth = 20;
inline constexpr Index kSequences = 2;
inline constexpr Index kLength = 11;
inline constexpr Index kTokens = kSequences * kLength;
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

inline ParameterSpec parameter(const std::string& name, Index rows, Index cols) {
  ParameterSpec spec;
  spec.name = name;
  spec.rows = rows;
  spec.cols = cols;
  return spec;
}

inline std::vector<ParameterSpec> parameters_of(const AttentionCase& c) {
  const AttentionSpec& s = c.spec;
  const Index width = s.hidden_size;
  std::vector<ParameterSpec> specs = {
      parameter("layer.norm.weight", 1, width), parameter("layer.norm.bias", 1, width),
      parameter("layer.output_norm.weight", 1, width), parameter("layer.output_norm.bias", 1, width)};
  const auto linear = [&](const std::string& name, Index out, Index in, bool bias) {
    specs.push_back(parameter(kPrefix + name + ".weight", out, in));
    if (bias) specs.push_back(parameter(kPrefix + name + ".bias", 1, out));
  };
  const auto norm = [&](const std::string& name, Index size) {
    specs.push_back(parameter(kPrefix + name + ".weight", 1, size));
  };
  if (const auto& l = s.latent) {
    if (l->q_rank > 0) {
      linear("q_a_proj", l->q_rank, width, s.qkv_bias);
      norm("q_a_layernorm", l->q_rank);
      linear("q_b_proj", s.query_width(), l->q_rank, false);
    } else {
      linear("q_proj", s.query_width(), width, false);
    }
    linear("kv_a_proj_with_mqa", l->kv_rank + l->rope_dim, width, s.qkv_bias);
    norm("kv_a_layernorm", l->kv_rank);
    linear("kv_b_proj", s.heads * (l->nope_dim + s.value_dim), l->kv_rank, false);
  } else {
    linear("qkv_proj", s.projected_width(), width, s.qkv_bias);
    norm("q_norm", s.qk_norm == QkNorm::kWholeWidth ? s.query_width() : s.head_dim);
    norm("k_norm", s.qk_norm == QkNorm::kWholeWidth ? s.key_width() : s.head_dim);
  }
  if (s.sinks) specs.push_back(parameter(kPrefix + "sinks", 1, s.heads));
  linear("o_proj", width, s.output_width(), s.output_bias);
  return specs;
}

/// A case with weights, input and the gradient of its output.
struct AttentionFixture {
  AttentionCase c;
  ParameterStore store;
  RopeTable rope;
  std::vector<std::int32_t> positions;
  Matrix input = random_matrix(kTokens, kWidth, 3);
  Matrix d_output = random_matrix(kTokens, kWidth, 4);

  explicit AttentionFixture(const AttentionCase& c)
      : c(c), store(parameters_of(c)), rope(make_rope_table(64, {.rotary_dim = c.rotary_dim})) {
    for (const Parameter& p : store.parameters())
      copy(random_matrix(p.spec.rows, p.spec.cols, stream_of(p.spec.name.c_str()), 0.6), p.value);
    for (Index t = 0; t < kTokens; ++t) positions.push_back(static_cast<std::int32_t>(t % kLength));
  }
  std::optional<NormSpec> norm() const {
    if (!c.input_norm) return std::nullopt;
    return NormSpec{"layer.norm.weight", kWidth, c.norm, c.kind};
  }
  std::optional<NormSpec> output_norm() const {
    if (!c.output_norm) return std::nullopt;
    return NormSpec{"layer.output_norm.weight", kWidth, c.norm, c.kind};
  }
  MixerLayer layer() const { return MixerLayer(c.spec, norm(), output_norm(), store, c.residual_scale); }
  MixerContext context() const { return {kSequences, kLength, positions, std::span(&rope, 1)}; }

  AttentionReference reference() const {
    AttentionReference r{c.spec, norm(), output_norm(), &rope, {}, kLength, {}, c.residual_scale};
    for (const Parameter& p : store.parameters())
      r.values[p.spec.name].assign(p.value.data, p.value.data + p.value.size());
    return r;
  }
};

inline KernelTable norm_and_rope_kernels(bool fused) {
  KernelTable table;
  if (fused) {
    table.rmsnorm = fused_rmsnorm();
    table.rope = fused_rope();
  }
  return table;
}

inline Doubles doubles_of(const Matrix& m) {
  return {m.view().data, m.view().data + m.view().size()};
}

/// Central differences of `objective` in some elements of x, which it reads, against `gradient`.
inline void expect_differences(const std::string& name, Doubles& x, const float* gradient,
                               const std::function<double()>& objective) {
  constexpr double kStep = 1e-5;
  // Of float32 sums: at most 1.7e-5 with fused multiply-adds and wide vectors, 3.3e-5 where each product is
  // rounded.
  constexpr double kNoise = 6e-5;
  const CounterRandom random(5, stream_of(name.c_str()));
  for (std::uint64_t sample = 0; sample < 16; ++sample) {
    const auto i = random.below(x.size(), sample);
    const double kept = x[i];
    x[i] = kept + kStep;
    const double above = objective();
    x[i] = kept - kStep;
    const double expected = (above - objective()) / (2 * kStep);
    x[i] = kept;
    EXPECT_NEAR(gradient[i], expected, kNoise * (1 + std::abs(expected))) << name << " " << i;
  }
}

}  // namespace moeloom::testing
