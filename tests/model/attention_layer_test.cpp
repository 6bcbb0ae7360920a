#include "moeloom/model/attention_layer.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <cstring>
#include <functional>
#include <numeric>
#include <ostream>

#include "support/attention_reference.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::AttentionReference;
using testing::Doubles;
using testing::random_matrix;

constexpr Index kWidth = 20;
constexpr Index kSequences = 2;
constexpr Index kLength = 11;
constexpr Index kTokens = kSequences * kLength;
const std::string kPrefix = "layer.self_attn.";

struct Case {
  std::string name;
  AttentionSpec spec;
  RmsNormSettings norm;
  bool output_norm = false;
  Index rotary_dim = 8;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

AttentionSpec projected(Index heads, Index kv_heads, Index head_dim) {
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

AttentionSpec latent(Index q_rank) {
  AttentionSpec spec = projected(3, 3, 10);
  spec.value_dim = 7;
  spec.latent =
      LatentSpec{.q_rank = q_rank, .kv_rank = 9, .nope_dim = 6, .rope_dim = 4, .norm = {.eps = 1e-6f}};
  return spec;
}

AttentionSpec with(AttentionSpec spec, const std::function<void(AttentionSpec&)>& edit) {
  edit(spec);
  return spec;
}

std::vector<Case> cases() {
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

ParameterSpec parameter(const std::string& name, Index rows, Index cols) {
  ParameterSpec spec;
  spec.name = name;
  spec.rows = rows;
  spec.cols = cols;
  return spec;
}

std::vector<ParameterSpec> parameters_of(const Case& c) {
  const AttentionSpec& s = c.spec;
  std::vector<ParameterSpec> specs = {parameter("layer.norm", 1, kWidth),
                                      parameter("layer.output_norm", 1, kWidth)};
  const auto linear = [&](const std::string& name, Index out, Index in, bool bias) {
    specs.push_back(parameter(kPrefix + name + ".weight", out, in));
    if (bias) specs.push_back(parameter(kPrefix + name + ".bias", 1, out));
  };
  const auto norm = [&](const std::string& name, Index size) {
    specs.push_back(parameter(kPrefix + name + ".weight", 1, size));
  };
  if (const auto& l = s.latent) {
    if (l->q_rank > 0) {
      linear("q_a_proj", l->q_rank, kWidth, s.qkv_bias);
      norm("q_a_layernorm", l->q_rank);
      linear("q_b_proj", s.query_width(), l->q_rank, false);
    } else {
      linear("q_proj", s.query_width(), kWidth, false);
    }
    linear("kv_a_proj_with_mqa", l->kv_rank + l->rope_dim, kWidth, s.qkv_bias);
    norm("kv_a_layernorm", l->kv_rank);
    linear("kv_b_proj", s.heads * (l->nope_dim + s.value_dim), l->kv_rank, false);
  } else {
    linear("qkv_proj", s.query_width() + s.key_width() + s.value_width(), kWidth, s.qkv_bias);
    norm("q_norm", s.qk_norm == QkNorm::kWholeWidth ? s.query_width() : s.head_dim);
    norm("k_norm", s.qk_norm == QkNorm::kWholeWidth ? s.key_width() : s.head_dim);
  }
  linear("o_proj", kWidth, s.output_width(), s.output_bias);
  return specs;
}

struct Fixture {
  Case c;
  ParameterStore store;
  RopeTable rope;
  std::vector<std::int32_t> positions;
  Matrix input = random_matrix(kTokens, kWidth, 3);
  Matrix d_output = random_matrix(kTokens, kWidth, 4);

  explicit Fixture(const Case& c)
      : c(c), store(parameters_of(c)), rope(make_rope_table(64, {.rotary_dim = c.rotary_dim})) {
    for (const Parameter& p : store.parameters())
      copy(random_matrix(p.spec.rows, p.spec.cols, stream_of(p.spec.name.c_str()), 0.6), p.value);
    for (Index t = 0; t < kTokens; ++t) positions.push_back(static_cast<std::int32_t>(t % kLength));
  }
  NormSpec norm() const { return {"layer.norm", kWidth, c.norm}; }
  std::optional<NormSpec> output_norm() const {
    if (!c.output_norm) return std::nullopt;
    return NormSpec{"layer.output_norm", kWidth, c.norm};
  }
  AttentionLayer layer() const { return AttentionLayer(c.spec, norm(), output_norm(), store); }
  AttentionContext context() const { return {kSequences, kLength, positions, std::span(&rope, 1)}; }

  AttentionReference reference() const {
    AttentionReference r{c.spec, norm(), output_norm(), &rope, {}, kLength};
    for (const Parameter& p : store.parameters())
      r.values[p.spec.name].assign(p.value.data, p.value.data + p.value.size());
    return r;
  }
};

KernelTable kernels(bool fused) {
  KernelTable table;
  if (fused) {
    table.rmsnorm = fused_rmsnorm();
    table.rope = fused_rope();
  }
  return table;
}

Doubles doubles_of(const Matrix& m) {
  return {m.view().data, m.view().data + m.view().size()};
}

class AttentionLayerOf : public ::testing::TestWithParam<Case> {};

TEST_P(AttentionLayerOf, AddsAttentionByItsDefinition) {
  const Fixture f(GetParam());
  const Doubles expected = f.reference().forward(doubles_of(f.input));
  for (const bool fused : {false, true}) {
    AttentionLayer layer = f.layer();
    Matrix hidden = Matrix::copy_of(f.input);
    layer.forward(kernels(fused), f.context(), hidden);
    // Sums of some dozens of fp32 products on the way, of numbers up to ten.
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(hidden.view().data[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << i;
  }
}

TEST_P(AttentionLayerOf, HasTheGradientsOfItsDefinition) {
  Fixture f(GetParam());
  AttentionLayer layer = f.layer();
  AttentionWorkspace workspace;
  Matrix hidden = Matrix::copy_of(f.input);
  Matrix gradient = Matrix::copy_of(f.d_output);
  layer.forward(kernels(true), f.context(), hidden);
  layer.backward(kernels(true), f.context(), gradient, workspace);

  AttentionReference reference = f.reference();
  Doubles input = doubles_of(f.input);
  const auto objective = [&] {
    const Doubles out = reference.forward(input);
    return std::inner_product(out.begin(), out.end(), f.d_output.view().data, 0.0);
  };
  const auto expect = [&](const std::string& name, Doubles& x, const float* got) {
    constexpr double kStep = 1e-5;
    const CounterRandom random(5, stream_of(name.c_str()));
    for (std::uint64_t sample = 0; sample < 16; ++sample) {
      const auto i = random.below(x.size(), sample);
      const double kept = x[i];
      x[i] = kept + kStep;
      const double above = objective();
      x[i] = kept - kStep;
      const double expected = (above - objective()) / (2 * kStep);
      x[i] = kept;
      EXPECT_NEAR(got[i], expected, 3e-5 * (1 + std::abs(expected))) << name << " " << i;
    }
  };
  expect("input", input, gradient.view().data);
  for (const Parameter& p : f.store.parameters())
    expect(p.spec.name, reference.values.at(p.spec.name), p.grad.data);
}

TEST_P(AttentionLayerOf, WithACacheGivesWhatTheWholeSequenceGives) {
  const Fixture f(GetParam());
  AttentionLayer layer = f.layer();
  Matrix whole = Matrix::copy_of(f.input);
  layer.forward(kernels(true), f.context(), whole);

  KeyValueCache cache = layer.make_cache(kLength);
  Matrix hidden = Matrix::copy_of(f.input);
  for (Index begin = 0; begin < kLength;) {  // four positions, then one at a time
    const Index count = begin == 0 ? 4 : 1;
    const AttentionContext next{1, count, std::span(f.positions).subspan(at(begin), at(count)),
                                std::span(&f.rope, 1)};
    layer.forward_cached(kernels(true), next, cache, hidden.view().rows_from(begin, count));
    begin += count;
  }
  for (Index i = 0; i < kLength * kWidth; ++i)
    ASSERT_NEAR(hidden.view().data[i], whole.view().data[i], 1e-5 * (1 + std::abs(whole.view().data[i])));
}

TEST_P(AttentionLayerOf, HasTheSameBitsOnOneThreadAndOnThree) {
  const int before = threads();
  std::vector<float> first;
  for (const int count : {1, 3}) {
    set_threads(count);
    Fixture f(GetParam());
    AttentionLayer layer = f.layer();
    AttentionWorkspace workspace;
    Matrix hidden = Matrix::copy_of(f.input);
    layer.forward(kernels(true), f.context(), hidden);
    layer.backward(kernels(true), f.context(), hidden, workspace);
    std::vector<float> all(hidden.view().data, hidden.view().data + hidden.view().size());
    for (const float g : f.store.gradients(Placement::kWorld)) all.push_back(g);
    if (count == 1) first = all;
    EXPECT_EQ(std::memcmp(first.data(), all.data(), all.size() * sizeof(float)), 0);
  }
  set_threads(before);
}

TEST_P(AttentionLayerOf, PassesNothingThroughWithoutTokens) {
  const Fixture f(GetParam());
  AttentionLayer layer = f.layer();
  AttentionWorkspace workspace;
  Matrix hidden(0, kWidth);
  const AttentionContext nobody{0, kLength, {}, std::span(&f.rope, 1)};
  EXPECT_NO_THROW(layer.forward(kernels(true), nobody, hidden));
  EXPECT_NO_THROW(layer.backward(kernels(true), nobody, hidden, workspace));
}

INSTANTIATE_TEST_SUITE_P(Every, AttentionLayerOf, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

TEST(AttentionLayer, TurnsByTheTableThatItsSpecificationNames) {
  Fixture f(cases().front());
  RopeTable tables[] = {make_rope_table(64, {.rotary_dim = 8}),
                        make_rope_table(64, {.rotary_dim = 8, .theta = 100})};
  const AttentionContext both{kSequences, kLength, f.positions, tables};
  f.c.spec.rope = 1;
  AttentionLayer second_of_two = f.layer();
  Matrix hidden = Matrix::copy_of(f.input);
  second_of_two.forward(kernels(true), both, hidden);

  f.c.spec.rope = 0;
  AttentionLayer only = f.layer();
  Matrix expected = Matrix::copy_of(f.input);
  only.forward(kernels(true), {kSequences, kLength, f.positions, std::span(tables).subspan(1)}, expected);
  EXPECT_EQ(std::memcmp(hidden.row(0), expected.row(0), sizeof(float) * kTokens * kWidth), 0);
}

TEST(AttentionLayer, RefusesWeightsThatDoNotHaveItsShape) {
  Fixture f(cases().front());
  f.c.spec.heads = 6;
  EXPECT_THROW(f.layer(), ShapeError);
  Fixture latents(cases().back());
  latents.c.spec.latent->rope_dim = 5;
  EXPECT_THROW(latents.layer(), ShapeError);
}

}  // namespace
}  // namespace moeloom
