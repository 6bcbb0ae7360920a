#include "model/mixer/mixer_layer.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <cstring>
#include <numeric>

#include "attention/attention_layer_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

class AttentionLayerOf : public ::testing::TestWithParam<AttentionCase> {};

TEST_P(AttentionLayerOf, AddsAttentionByItsDefinition) {
  const AttentionFixture f(GetParam());
  const Doubles expected = f.reference().forward(doubles_of(f.input));
  for (const bool fused : {false, true}) {
    MixerLayer layer = f.layer();
    Matrix hidden = Matrix::copy_of(f.input);
    layer.forward(norm_and_rope_kernels(fused), f.context(), hidden);
    // Sums of some dozens of fp32 products on the way, of numbers up to ten.
    for (std::size_t i = 0; i < expected.size(); ++i)
      ASSERT_NEAR(hidden.view().data[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << i;
  }
}

TEST_P(AttentionLayerOf, HasTheGradientsOfItsDefinition) {
  AttentionFixture f(GetParam());
  MixerLayer layer = f.layer();
  MixerWorkspace workspace;
  Matrix hidden = Matrix::copy_of(f.input);
  Matrix gradient = Matrix::copy_of(f.d_output);
  layer.forward(norm_and_rope_kernels(true), f.context(), hidden);
  layer.backward(norm_and_rope_kernels(true), f.context(), gradient, workspace);

  AttentionReference reference = f.reference();
  Doubles input = doubles_of(f.input);
  const auto objective = [&] {
    const Doubles out = reference.forward(input);
    return std::inner_product(out.begin(), out.end(), f.d_output.view().data, 0.0);
  };
  expect_differences("input", input, gradient.view().data, objective);
  for (const Parameter& p : f.store.parameters())
    expect_differences(p.spec.name, reference.values.at(p.spec.name), p.grad.data, objective);
}

TEST_P(AttentionLayerOf, WithACacheGivesWhatTheWholeSequenceGives) {
  const AttentionFixture f(GetParam());
  MixerLayer layer = f.layer();
  Matrix whole = Matrix::copy_of(f.input);
  layer.forward(norm_and_rope_kernels(true), f.context(), whole);

  MixerCache cache = layer.make_cache(kLength);
  Matrix hidden = Matrix::copy_of(f.input);
  for (Index begin = 0; begin < kLength;) {  // four positions, then one at a time
    const Index count = begin == 0 ? 4 : 1;
    const MixerContext next{1, count, std::span(f.positions).subspan(at(begin), at(count)),
                            std::span(&f.rope, 1)};
    layer.forward_cached(norm_and_rope_kernels(true), next, cache, hidden.view().rows_from(begin, count));
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
    AttentionFixture f(GetParam());
    MixerLayer layer = f.layer();
    MixerWorkspace workspace;
    Matrix hidden = Matrix::copy_of(f.input);
    layer.forward(norm_and_rope_kernels(true), f.context(), hidden);
    layer.backward(norm_and_rope_kernels(true), f.context(), hidden, workspace);
    std::vector<float> all(hidden.view().data, hidden.view().data + hidden.view().size());
    for (const float g : f.store.gradients(Placement::kWorld)) all.push_back(g);
    if (count == 1) first = all;
    EXPECT_EQ(std::memcmp(first.data(), all.data(), all.size() * sizeof(float)), 0);
  }
  set_threads(before);
}

/// Sums of one leaf a sequence, against gradients that were added up as they came.
TEST_P(AttentionLayerOf, GivesItsGradientsToExactSumsLeafByLeaf) {
  AttentionFixture plain(GetParam());
  ParameterStore store(parameters_of(plain.c), {}, {.sequences = 1, .per_step = kSequences});
  for (const Parameter& p : plain.store.parameters()) copy(p.value, store.find(p.spec.name).value);
  ExactSums& sums = *store.sums(Placement::kWorld);
  sums.rows_per_leaf = kLength;
  const auto run = [&](const ParameterStore& of) {
    MixerLayer layer(plain.c.spec, plain.norm(), plain.output_norm(), of, plain.c.residual_scale);
    MixerWorkspace workspace;
    Matrix hidden = Matrix::copy_of(plain.input), gradient = Matrix::copy_of(plain.d_output);
    layer.forward(norm_and_rope_kernels(true), plain.context(), hidden);
    layer.backward(norm_and_rope_kernels(true), plain.context(), gradient, workspace);
  };
  run(plain.store);
  run(store);
  for (const Parameter& p : plain.store.parameters()) {
    const Parameter& exact = store.find(p.spec.name);
    for (Index i = 0; i < p.grad.size(); ++i) {
      const float sum = ExactSums::value_of(sums.sums()[at(exact.offset + i)]);
      ASSERT_NEAR(sum, p.grad.data[i], 1e-5 * (1 + std::abs(p.grad.data[i]))) << p.spec.name << " " << i;
      ASSERT_EQ(exact.grad.data[i], 0.0f) << p.spec.name << " keeps a leaf that was taken";
    }
  }
}

TEST_P(AttentionLayerOf, PassesNothingThroughWithoutTokens) {
  const AttentionFixture f(GetParam());
  MixerLayer layer = f.layer();
  MixerWorkspace workspace;
  Matrix hidden(0, kWidth);
  const MixerContext nobody{0, kLength, {}, std::span(&f.rope, 1)};
  EXPECT_NO_THROW(layer.forward(norm_and_rope_kernels(true), nobody, hidden));
  EXPECT_NO_THROW(layer.backward(norm_and_rope_kernels(true), nobody, hidden, workspace));
}

INSTANTIATE_TEST_SUITE_P(Every, AttentionLayerOf, ::testing::ValuesIn(attention_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(AttentionLayer, TurnsByTheTableThatItsSpecificationNames) {
  AttentionFixture f(attention_cases().front());
  RopeTable tables[] = {make_rope_table(64, {.rotary_dim = 8}),
                        make_rope_table(64, {.rotary_dim = 8, .theta = 100})};
  const MixerContext both{kSequences, kLength, f.positions, tables};
  f.c.spec.rope = 1;
  MixerLayer second_of_two = f.layer();
  Matrix hidden = Matrix::copy_of(f.input);
  second_of_two.forward(norm_and_rope_kernels(true), both, hidden);

  f.c.spec.rope = 0;
  MixerLayer only = f.layer();
  Matrix expected = Matrix::copy_of(f.input);
  only.forward(norm_and_rope_kernels(true), {kSequences, kLength, f.positions, std::span(tables).subspan(1)},
               expected);
  EXPECT_EQ(std::memcmp(hidden.row(0), expected.row(0), sizeof(float) * kTokens * kWidth), 0);
}

TEST(AttentionLayer, RefusesWeightsThatDoNotHaveItsShape) {
  AttentionFixture f(attention_cases().front());
  f.c.spec.heads = 6;
  EXPECT_THROW(f.layer(), ShapeError);
  AttentionFixture latents(attention_cases().back());
  latents.c.spec.latent->rope_dim = 5;
  EXPECT_THROW(latents.layer(), ShapeError);
}

}  // namespace
}  // namespace moeloom
