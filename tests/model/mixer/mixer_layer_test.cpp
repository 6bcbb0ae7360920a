// What holds for every mixer that keeps a state instead of keys.
#include "model/mixer/mixer_layer.hpp"

#include "model/freeze.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/model/hf/config.hpp"

#include <cmath>
#include <cstring>
#include <numeric>

#include "mixer/mixer_testing.hpp"

namespace moeloom {
namespace {

using namespace testing;

constexpr Index kMixedSequences = 2;
constexpr Index kMixedLength = 70;  // more than a chunk of the delta rule
constexpr Index kMixedWidth = 20;

struct MixerFixture {
  ModelConfig config;
  LayerSpec spec;
  ParameterStore store;
  Index sequences, length;
  std::vector<std::int32_t> positions;
  Matrix input, d_output;
  MixerWorkspace workspace;

  explicit MixerFixture(const MixerCase& c, Index sequences = kMixedSequences, Index length = kMixedLength,
                        const LeafSettings& leaves = {}, const std::set<std::string>& frozen = {})
      : config(c.config),
        spec(config.layer(0)),
        store(with_frozen(mixer_parameters(config), frozen), {}, leaves),
        sequences(sequences),
        length(length),
        input(random_matrix(sequences * length, kMixedWidth, 3)),
        d_output(random_matrix(sequences * length, kMixedWidth, 4, 0.1)) {
    load_random(store);
    for (Index t = 0; t < input.rows(); ++t) positions.push_back(static_cast<std::int32_t>(t % length));
  }
  MixerLayer layer() const { return MixerLayer(spec.mixer, std::nullopt, std::nullopt, store); }
  MixerContext context() const { return {sequences, length, positions, {}}; }

  Matrix forward(MixerLayer& layer, const MixerContext& context) const {
    Matrix hidden = Matrix::copy_of(input);
    layer.forward(fused_kernels(), context, hidden);
    return hidden;
  }
  Matrix backward(MixerLayer& layer, const MixerContext& context) {
    Matrix d_hidden = Matrix::copy_of(d_output);
    layer.backward(fused_kernels(), context, d_hidden, workspace);
    return d_hidden;
  }
  std::vector<float> gradients() {
    const auto all = store.gradients(Placement::kWorld);
    return {all.begin(), all.end()};
  }
};

bool have_same_bits(ConstMatrixView a, ConstMatrixView b) {
  return a.rows == b.rows && a.cols == b.cols &&
         std::memcmp(a.data, b.data, at(a.size()) * sizeof(float)) == 0;
}

void expect_close(ConstMatrixView got, ConstMatrixView expected, double tolerance) {
  ASSERT_EQ(got.size(), expected.size());
  for (Index i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got.data[i], expected.data[i], tolerance * (1 + std::abs(expected.data[i]))) << i;
}

class MixerOf : public ::testing::TestWithParam<MixerCase> {};

/// A prompt, another, then one position at a time.
TEST_P(MixerOf, WithItsStateGivesWhatTheWholeSequenceGives) {
  const MixerFixture f(GetParam(), 1);
  MixerLayer layer = f.layer();
  const Matrix whole = f.forward(layer, f.context());
  MixerCache cache = layer.make_cache(kMixedLength);
  for (const bool again : {false, true}) {  // a state begins anew at position 0
    SCOPED_TRACE(again ? "again" : "first");
    Matrix hidden = Matrix::copy_of(f.input);
    for (Index first = 0, count = 5; first < kMixedLength; first += count) {
      count = first == 0 ? 5 : first == 5 ? 60 : 1;
      const MixerContext next{1, count, std::span(f.positions).subspan(at(first), at(count)), {}};
      layer.forward_cached(fused_kernels(), next, cache, hidden.view().rows_from(first, count));
    }
    expect_close(hidden, whole, 2e-5);
    EXPECT_EQ(std::get<RecurrentState>(cache).end(), kMixedLength);
  }
}

TEST_P(MixerOf, HasAStateThatDoesNotGrowWithTheSequence) {
  const MixerFixture f(GetParam(), 1);
  const auto bytes = [&](Index capacity) {
    return std::get<RecurrentState>(f.layer().make_cache(capacity)).bytes();
  };
  EXPECT_EQ(bytes(16), bytes(1 << 20));
}

/// Along a random direction of everything that is read, against a difference of the objective <d_output, y>.
TEST_P(MixerOf, HasTheGradientOfItsForward) {
  MixerFixture f(GetParam(), 2, 9);
  MixerLayer layer = f.layer();
  f.forward(layer, f.context());
  const Matrix d_input = f.backward(layer, f.context());
  const auto objective = [&] {
    const Matrix y = f.forward(layer, f.context());
    return std::inner_product(y.row(0), y.row(0) + y.view().size(), f.d_output.row(0), 0.0);
  };
  const auto expect_slope = [&](const std::string& name, MatrixView x, ConstMatrixView gradient) {
    const Matrix before = Matrix::copy_of(x), direction = random_matrix(x.rows, x.cols, stream_of(name));
    constexpr float kStep = 2e-3f;
    const auto moved = [&](float step) {
      for (Index i = 0; i < x.size(); ++i)
        x.data[i] = before.view().data[i] + step * direction.view().data[i];
      return objective();
    };
    const double slope = (moved(kStep) - moved(-kStep)) / (2 * kStep);
    copy(before, x);
    const double expected =
        std::inner_product(gradient.data, gradient.data + gradient.size(), direction.view().data, 0.0);
    EXPECT_NEAR(slope, expected, 4e-3 * (1 + std::abs(expected))) << name;
  };
  expect_slope("input", f.input, d_input);
  for (const Parameter& p : f.store.parameters()) expect_slope(p.spec.name, p.value, p.grad);
}

TEST_P(MixerOf, HasTheSameBitsOnOneThreadAndOnThree) {
  const int before = threads();
  std::vector<float> first_gradients;
  Matrix first, first_d;
  for (const int count : {1, 3}) {
    set_threads(count);
    MixerFixture f(GetParam());
    MixerLayer layer = f.layer();
    Matrix y = f.forward(layer, f.context()), d = f.backward(layer, f.context());
    if (count == 1) {
      first = std::move(y), first_d = std::move(d), first_gradients = f.gradients();
      continue;
    }
    EXPECT_TRUE(have_same_bits(y, first));
    EXPECT_TRUE(have_same_bits(d, first_d));
    EXPECT_EQ(f.gradients(), first_gradients);
  }
  set_threads(before);
}

TEST_P(MixerOf, GivesItsGradientsToExactSumsLeafByLeaf) {
  MixerFixture plain(GetParam()),
      exact(GetParam(), kMixedSequences, kMixedLength, {.sequences = 1, .per_step = kMixedSequences});
  ExactSums& sums = *exact.store.sums(Placement::kWorld);
  sums.rows_per_leaf = kMixedLength;
  for (MixerFixture* f : {&plain, &exact}) {
    MixerLayer layer = f->layer();
    f->forward(layer, f->context());
    f->backward(layer, f->context());
  }
  for (const Parameter& p : plain.store.parameters()) {
    const Parameter& other = exact.store.find(p.spec.name);
    for (Index i = 0; i < p.grad.size(); ++i) {
      const float sum = ExactSums::value_of(sums.sums()[at(other.offset + i)]);
      ASSERT_NEAR(sum, p.grad.data[i], 2e-5 * (1 + std::abs(p.grad.data[i]))) << p.spec.name << " " << i;
      ASSERT_EQ(other.grad.data[i], 0.0f) << p.spec.name << " keeps a leaf that was taken";
    }
  }
}

/// Segments of a row are what each would be alone, forward and backward, but for a few roundings of numbers
/// below 1: OpenBLAS chooses a kernel by the number of rows.
TEST_P(MixerOf, KeepsSegmentsApart) {
  MixerFixture f(GetParam());
  const std::vector<Index> offsets = {0, 1, 40, kMixedLength, kMixedLength + 66, 2 * kMixedLength};
  MixerContext context = f.context();
  context.segment_offsets = offsets;
  MixerLayer layer = f.layer();
  const Matrix y = f.forward(layer, context), d = f.backward(layer, context);
  for (std::size_t s = 0; s + 1 < offsets.size(); ++s) {
    const Index rows = offsets[s + 1] - offsets[s];
    MixerFixture alone(GetParam(), 1, rows);
    copy(f.input.view().rows_from(offsets[s], rows), alone.input);
    copy(f.d_output.view().rows_from(offsets[s], rows), alone.d_output);
    MixerLayer of_one = alone.layer();
    expect_close(y.view().rows_from(offsets[s], rows), alone.forward(of_one, alone.context()), 3e-6);
    expect_close(d.view().rows_from(offsets[s], rows), alone.backward(of_one, alone.context()), 3e-6);
  }
}

TEST_P(MixerOf, DoesNotLookAtPaddingBehindTheText) {
  MixerFixture f(GetParam(), 1);
  std::vector<std::uint8_t> is_real(kMixedLength, 1);
  std::fill(is_real.begin() + 50, is_real.end(), std::uint8_t{0});
  MixerContext context = f.context();
  context.is_real = is_real;
  MixerLayer layer = f.layer();
  const Matrix whole = f.forward(layer, f.context()), padded = f.forward(layer, context);
  EXPECT_TRUE(have_same_bits(padded.view().rows_from(0, 50), whole.view().rows_from(0, 50)));
}

/// One weight after the other is frozen: what is left has the gradients that it had.
TEST_P(MixerOf, LeavesOutTheGradientOfAFrozenWeightAlone) {
  MixerFixture all(GetParam());
  MixerLayer layer = all.layer();
  all.forward(layer, all.context());
  const Matrix d = all.backward(layer, all.context());
  for (const Parameter& frozen : all.store.parameters()) {
    SCOPED_TRACE(frozen.spec.name);
    MixerFixture f(GetParam(), kMixedSequences, kMixedLength, {}, {frozen.spec.name});
    MixerLayer one = f.layer();
    f.forward(one, f.context());
    EXPECT_TRUE(have_same_bits(f.backward(one, f.context()), d));
    for (const Parameter& p : all.store.parameters())
      if (p.spec.name != frozen.spec.name) {
        EXPECT_TRUE(have_same_bits(f.store.find(p.spec.name).grad, p.grad)) << p.spec.name;
      }
  }
}

TEST_P(MixerOf, PassesNothingThroughWithoutTokens) {
  MixerFixture f(GetParam(), 0);
  MixerLayer layer = f.layer();
  EXPECT_NO_THROW(f.forward(layer, f.context()));
  EXPECT_NO_THROW(f.backward(layer, f.context()));
  MixerCache cache = layer.make_cache(4);
  Matrix nothing(0, kMixedWidth);
  EXPECT_NO_THROW(layer.forward_cached(fused_kernels(), f.context(), cache, nothing));
}

INSTANTIATE_TEST_SUITE_P(Every, MixerOf, ::testing::ValuesIn(mixer_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(Mixers, RefuseWeightsThatDoNotHaveTheirShape) {
  MixerFixture conv(mixer_cases().front());
  std::get<ShortConvSpec>(conv.spec.mixer).taps = 5;
  EXPECT_THROW(conv.layer(), ShapeError);
  MixerFixture net(mixer_cases().back());
  std::get<DeltaNetSpec>(net.spec.mixer).value_dim = 7;
  EXPECT_THROW(net.layer(), ShapeError);
}

}  // namespace
}  // namespace moeloom
