// Attention layers with random weights: what the tests of the layer and of its heads share.
#pragma once

#include "model/mixer/mixer_layer.hpp"

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "attention/attention_cases.hpp"
#include "support/attention_reference.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom::testing {

inline constexpr Index kSequences = 2;
inline constexpr Index kLength = 11;
inline constexpr Index kTokens = kSequences * kLength;

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
    if (!s.keys_of) norm("k_norm", s.qk_norm == QkNorm::kWholeWidth ? s.key_width() : s.head_dim);
  }
  if (s.gate && !s.gate->with_query) linear("gate_proj", s.gate_width(), width, false);
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
