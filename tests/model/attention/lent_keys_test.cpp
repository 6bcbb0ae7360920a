// Layers that read the keys and values of an earlier one, against their definition, with a cache, and where
// backward makes layers again.
#include "model/parts/lent_keys.hpp"

#include <cstring>
#include <numeric>

#include "attention/lending_stack.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

class LentKeysOf : public ::testing::TestWithParam<AttentionCase> {};

/// In sequences and in segments.
TEST_P(LentKeysOf, AreReadByLaterLayersAndHaveTheGradientsOfAllThatReadThem) {
  for (const std::vector<Index>& segments : {std::vector<Index>(), {0, 5, 6, 14, kTokens}}) {
    LendingStack stack(GetParam(), segments);
    const Matrix &input = stack.fixtures[0].input, &d_output = stack.fixtures[0].d_output;
    const Matrix output = stack.forward(input);
    const Matrix gradient = stack.backward(d_output);

    std::vector<AttentionReference> layers = references(stack);
    Doubles values = doubles_of(input);
    const Doubles expected = by_definition(layers, values);
    for (std::size_t i = 0; i < expected.size(); ++i)  // three layers of sums of dozens of fp32 products
      ASSERT_NEAR(output.view().data[i], expected[i], 3e-5 * (1 + std::abs(expected[i]))) << i;
    const auto objective = [&] {
      const Doubles out = by_definition(layers, values);
      return std::inner_product(out.begin(), out.end(), d_output.view().data, 0.0);
    };
    expect_differences("input", values, gradient.view().data, objective);
    for (std::size_t layer = 0; layer < layers.size(); ++layer)
      for (const Parameter& p : stack.fixtures[layer].store.parameters())
        expect_differences(p.spec.name, layers[layer].values.at(p.spec.name), p.grad.data, objective);
  }
}

/// As DecoderLayer makes blocks again: all layers keep what they need in one place.
TEST_P(LentKeysOf, HaveTheSameBitsWhereLayersAreMadeAgain) {
  LendingStack plain(GetParam()), again(GetParam());
  const Matrix &input = plain.fixtures[0].input, &d_output = plain.fixtures[0].d_output;
  const Matrix hidden = plain.forward(input);
  const Matrix gradient = plain.backward(d_output);

  MixerActivations shared;
  const auto with_shared = [&](MixerLayer& layer, const auto& body) {
    layer.swap_activations(shared);
    body(layer);
    layer.swap_activations(shared);
  };
  Matrix h = Matrix::copy_of(input), d = Matrix::copy_of(d_output);
  for (Index l = 0; l < kLayers; ++l)
    with_shared(again.layers[at(l)],
                [&](MixerLayer& layer) { layer.forward(again.kernels, again.context(l), h); });
  for (Index l = kLayers - 1; l >= 0; --l)
    with_shared(again.layers[at(l)], [&](MixerLayer& layer) {
      Matrix before = Matrix::copy_of(layer.input());
      layer.forward(again.kernels, again.context(l), before);
      layer.backward(again.kernels, again.context(l), d, again.workspace);
    });
  EXPECT_EQ(std::memcmp(h.row(0), hidden.row(0), sizeof(float) * at(hidden.view().size())), 0);
  EXPECT_EQ(std::memcmp(d.row(0), gradient.row(0), sizeof(float) * at(gradient.view().size())), 0);
  EXPECT_EQ(plain.gradients(), again.gradients());
}

/// Lent once and read in every micro-batch.
TEST_P(LentKeysOf, GiveEachBackwardItsOwnGradients) {
  LendingStack once(GetParam()), twice(GetParam());
  const Matrix &input = once.fixtures[0].input, &d_output = once.fixtures[0].d_output;
  once.forward(input);
  const Matrix first = once.backward(d_output);
  twice.forward(input);
  twice.backward(d_output);
  twice.forward(input);
  twice.forward(input);  // one without a backward
  const Matrix second = twice.backward(d_output);
  EXPECT_EQ(std::memcmp(first.row(0), second.row(0), sizeof(float) * at(first.view().size())), 0);
}

/// A prompt that is longer than a window's cache, which the lender must not drop before readers have read it.
TEST_P(LentKeysOf, AreReadFromTheLendersCache) {
  constexpr Index kPrompt = 110, kAll = 125;
  LendingStack stack(GetParam());
  const RopeTable rope = make_rope_table(kAll, {.rotary_dim = 8});
  std::vector<std::int32_t> positions(at(kAll));
  std::iota(positions.begin(), positions.end(), 0);
  const auto context = [&](Index layer, Index first, Index count) {
    return MixerContext{.sequences = 1,
                        .sequence_length = count,
                        .position_ids = std::span(positions).subspan(at(first), at(count)),
                        .ropes = std::span(&rope, 1),
                        .layer = layer,
                        .lent = stack.lent};
  };
  Matrix whole = random_matrix(kAll, kWidth, 8), hidden = Matrix::copy_of(whole);
  for (Index layer = 0; layer < kLayers; ++layer)
    stack.layers[at(layer)].forward(stack.kernels, context(layer, 0, kAll), whole);

  std::vector<MixerCache> caches;
  for (MixerLayer& layer : stack.layers) caches.push_back(layer.make_cache(kAll));
  EXPECT_EQ(std::get<KeyValueCache>(caches.back()).bytes(), 0);
  for (Index first = 0; first < kAll;) {
    const Index count = first == 0 ? kPrompt : 1;
    for (Index layer = 0; layer < kLayers; ++layer)
      stack.layers[at(layer)].forward_cached(stack.kernels, context(layer, first, count), caches[at(layer)],
                                             hidden.view().rows_from(first, count));
    first += count;
    for (const MixerCache& cache : caches) EXPECT_TRUE(std::get<KeyValueCache>(cache).serves(first));
  }
  for (Index i = 0; i < kAll * kWidth; ++i)
    ASSERT_NEAR(hidden.view().data[i], whole.view().data[i], 3e-5 * (1 + std::abs(whole.view().data[i])));
}

TEST_P(LentKeysOf, OfNoTokenAreNone) {
  LendingStack stack(GetParam());
  Matrix nothing(0, kWidth);
  const auto nobody = [&](Index layer) {
    MixerContext context = stack.context(layer);
    context.sequences = 0;
    context.position_ids = {};
    return context;
  };
  for (Index l = 0; l < kLayers; ++l)
    EXPECT_NO_THROW(stack.layers[at(l)].forward(stack.kernels, nobody(l), nothing));
  for (Index l = kLayers - 1; l >= 0; --l)
    EXPECT_NO_THROW(stack.layers[at(l)].backward(stack.kernels, nobody(l), nothing, stack.workspace));
}

INSTANTIATE_TEST_SUITE_P(Every, LentKeysOf, ::testing::ValuesIn(lending_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(LentKeys, ThatNobodyReadsChangeNoBit) {
  const auto run = [](bool lends) {
    AttentionCase c = lending_cases()[1];
    c.spec.lends_keys = lends;
    AttentionFixture f(c);
    MixerLayer layer = f.layer();
    MixerWorkspace workspace;
    std::vector<LentKeys> lent(1);
    MixerContext context = f.context();
    context.lent = lent;
    Matrix hidden = Matrix::copy_of(f.input);
    layer.forward(norm_and_rope_kernels(true), context, hidden);
    layer.backward(norm_and_rope_kernels(true), context, hidden, workspace);
    std::vector<float> all(hidden.view().data, hidden.view().data + hidden.view().size());
    for (const float g : f.store.gradients(Placement::kWorld)) all.push_back(g);
    return all;
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(LentKeys, AreCountedWhereALayerLends) {
  AttentionSpec spec = projected(4, 2, 8);
  EXPECT_EQ(LentKeys::bytes_of(spec, 10), 0);
  spec.lends_keys = true;
  spec.value_dim = 5;
  EXPECT_EQ(LentKeys::bytes_of(spec, 10), 2 * 10 * (16 + 10) * 4);
  EXPECT_EQ(LentKeys::bytes_of(ShortConvSpec{}, 10), 0);
}

TEST(LentKeys, AreNotThoseOfLatentHeads) {
  AttentionFixture f({"latent", latent(5), {}, false, 4});
  f.c.spec.lends_keys = true;
  EXPECT_THROW(f.layer(), ShapeError);
}

}  // namespace
}  // namespace moeloom
