#include "model/parts/linear.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <cstring>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

constexpr Index kIn = 7;
constexpr Index kOut = 5;

ParameterStore store_with_bias() {
  ParameterSpec weight;
  weight.name = "module.weight";
  weight.rows = kOut;
  weight.cols = kIn;
  ParameterSpec bias;
  bias.name = "module.bias";
  bias.rows = 1;
  bias.cols = kOut;
  return ParameterStore({weight, bias});
}

void randomise(ParameterStore& store) {
  std::uint64_t seed = 1;
  for (const Parameter& p : store.parameters())
    copy(random_matrix(p.spec.rows, p.spec.cols, seed++), p.value);
}

class LinearOfRows : public ::testing::TestWithParam<Index> {};

TEST_P(LinearOfRows, AddsItsBiasToEveryRowWrittenOrAdded) {
  ParameterStore store = store_with_bias();
  randomise(store);
  const Linear linear = Linear::with_bias(store, "module");
  const Matrix x = random_matrix(GetParam(), kIn, 8);
  Matrix written = random_matrix(GetParam(), kOut, 9);
  Matrix added = Matrix::copy_of(written);
  const Matrix before = Matrix::copy_of(written);
  linear.forward(native_dense(), x, written);
  linear.forward(native_dense(), x, added, Write::kAdd);
  for (Index t = 0; t < x.rows(); ++t)
    for (Index i = 0; i < kOut; ++i) {
      double y = linear.bias[at(i)];
      for (Index j = 0; j < kIn; ++j) y += static_cast<double>(linear.weight(i, j)) * x.view()(t, j);
      EXPECT_NEAR(written.view()(t, i), y, 1e-5);  // eight roundings of numbers up to ten
      EXPECT_NEAR(added.view()(t, i), y + before.view()(t, i), 1e-5);
    }
}

TEST_P(LinearOfRows, AddsTheRowsOfTheGradientInChunks) {
  ParameterStore store = store_with_bias();
  const Linear linear = Linear::with_bias(store, "module");
  const Matrix dy = random_matrix(GetParam(), kOut, 10);
  const Matrix x = random_matrix(GetParam(), kIn, 11);
  Matrix dx(GetParam(), kIn);
  std::ranges::fill(linear.bias_grad, 2.0f);
  linear.backward(native_dense(), dy, x, dx);
  for (Index i = 0; i < kOut; ++i) {
    float expected = 2.0f;
    for (Index begin = 0; begin < dy.rows(); begin += kSumChunkRows) {
      float chunk = 0.0f;
      for (Index t = begin; t < std::min(begin + kSumChunkRows, dy.rows()); ++t) chunk += dy.view()(t, i);
      expected += chunk;
    }
    EXPECT_EQ(linear.bias_grad[at(i)], expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Some, LinearOfRows, ::testing::Values(0, 1, 3, 255, 256, 257, 700));

TEST(Linear, AddsRowsInTheSameOrderForAnyThreadCount) {
  const int before = threads();
  const Matrix wide = random_matrix(600, 1000, 3);
  std::vector<float> alone(1000), shared(1000);
  set_threads(1);
  add_row_sums(wide, alone);
  set_threads(3);
  add_row_sums(wide, shared);
  set_threads(before);
  EXPECT_EQ(std::memcmp(alone.data(), shared.data(), alone.size() * sizeof(float)), 0);
}

TEST(Linear, LeavesTheGradientsOfFrozenWeightsOut) {
  ParameterStore store = store_with_bias();
  randomise(store);
  const Linear trained = Linear::with_bias(store, "module");
  Linear frozen = trained;
  frozen.grad = {};
  frozen.bias_grad = {};
  const Matrix dy = random_matrix(30, kOut, 12);
  const Matrix x = random_matrix(30, kIn, 13);
  Matrix dx(30, kIn);
  Matrix expected(30, kIn);
  frozen.backward(native_dense(), dy, x, dx);
  EXPECT_TRUE(std::ranges::all_of(store.gradients(Placement::kWorld), [](float g) { return g == 0.0f; }));
  trained.backward(native_dense(), dy, x, expected);
  EXPECT_TRUE(std::ranges::equal(dx.view().flat(), expected.view().flat()));
  EXPECT_FALSE(std::ranges::all_of(store.gradients(Placement::kWorld), [](float g) { return g == 0.0f; }));
}

TEST(Linear, WithAFrozenWeightStillTrainsItsBias) {
  ParameterStore store = store_with_bias();
  Linear linear = Linear::with_bias(store, "module");
  linear.grad = {};
  const Matrix dy = random_matrix(3, kOut, 12);
  Matrix dx(3, kIn);
  linear.backward(native_dense(), dy, random_matrix(3, kIn, 13), dx);
  EXPECT_NE(linear.bias_grad[0], 0.0f);
}

TEST(Linear, RefusesAMissingBias) {
  ParameterSpec weight;
  weight.name = "module.weight";
  weight.rows = kOut;
  weight.cols = kIn;
  const ParameterStore store({weight});
  EXPECT_THROW(Linear::with_bias(store, "module"), ShapeError);
  EXPECT_NO_THROW(Linear::of_module(store, "module", false));
}

}  // namespace
}  // namespace moeloom
