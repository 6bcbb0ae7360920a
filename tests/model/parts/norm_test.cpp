#include "model/parts/norm.hpp"

#include "kernels/elementwise/layernorm.hpp"
#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom::norm_test {
namespace {

using testing::random_matrix;

constexpr Index kNormWidth = 6;

std::vector<ParameterSpec> one_norm() {
  ParameterSpec spec;
  spec.name = "norm.weight";
  spec.rows = 1;
  spec.cols = kNormWidth;
  return {spec};
}

TEST(Norm, HandsItsSettingsToTheKernelBothWays) {
  ParameterStore store(one_norm());
  copy(random_matrix(1, kNormWidth, 1), store.find("norm.weight").value);
  const RmsNormSettings settings{.eps = 0.1f, .weight_offset = 1};
  const Norm norm = Norm::of(store, NormSpec{"norm.weight", kNormWidth, settings});
  const RmsNormKernel kernel = reference_rmsnorm();
  const Matrix x = random_matrix(4, 2 * kNormWidth, 2);  // two groups
  const Matrix dy = random_matrix(4, 2 * kNormWidth, 3);
  Matrix y(4, 2 * kNormWidth), dx(4, 2 * kNormWidth), expected(4, 2 * kNormWidth),
      expected_dx(4, 2 * kNormWidth);
  std::vector<float> inv_rms, expected_inv_rms(8), d_weight(kNormWidth);
  norm.forward(kernel, x, y, inv_rms);
  norm.backward(kernel, dy, x, inv_rms, dx);
  kernel.forward(x, norm.weight, settings, expected, expected_inv_rms);
  kernel.backward({x, norm.weight, settings, expected_inv_rms}, dy, expected_dx, d_weight);
  EXPECT_EQ(inv_rms, expected_inv_rms);
  EXPECT_TRUE(std::ranges::equal(y.view().flat(), expected.view().flat()));
  EXPECT_TRUE(std::ranges::equal(dx.view().flat(), expected_dx.view().flat()));
  EXPECT_TRUE(std::ranges::equal(norm.grad, d_weight));

  Norm frozen = norm;
  frozen.grad = {};
  fill(dx, 0.0f);
  frozen.backward(kernel, dy, x, inv_rms, dx);
  EXPECT_TRUE(std::ranges::equal(dx.view().flat(), expected_dx.view().flat()));
  EXPECT_TRUE(std::ranges::equal(norm.grad, d_weight)) << "a frozen norm must not add to its gradient";
}

TEST(Norm, OfALayerNormHasABiasBesideItsWeight) {
  std::vector<ParameterSpec> specs = one_norm();
  specs.push_back(specs.front());
  specs.back().name = "norm.bias";
  ParameterStore store(specs);
  copy(random_matrix(1, kNormWidth, 1), store.find("norm.weight").value);
  copy(random_matrix(1, kNormWidth, 4), store.find("norm.bias").value);
  const Norm norm = Norm::of(store, NormSpec{"norm.weight", kNormWidth, {.eps = 0.1f}, NormKind::kLayer});
  const Matrix x = random_matrix(5, kNormWidth, 2), dy = random_matrix(5, kNormWidth, 3);
  Matrix y(5, kNormWidth), dx(5, kNormWidth), expected(5, kNormWidth), expected_dx(5, kNormWidth);
  std::vector<float> inv, expected_inv(5), d_weight(kNormWidth), d_bias(kNormWidth);
  norm.forward(reference_rmsnorm(), x, y, inv);
  norm.backward(reference_rmsnorm(), dy, x, inv, dx);
  const LayerNormWeights weights{norm.weight, norm.bias, 0.1f};
  layernorm_forward(x, weights, expected, expected_inv);
  layernorm_backward(x, weights, expected_inv, dy, expected_dx, {d_weight, d_bias});
  EXPECT_EQ(inv, expected_inv);
  EXPECT_TRUE(std::ranges::equal(y.view().flat(), expected.view().flat()));
  EXPECT_TRUE(std::ranges::equal(dx.view().flat(), expected_dx.view().flat()));
  EXPECT_TRUE(std::ranges::equal(store.find("norm.weight").grad.flat(), d_weight));
  EXPECT_TRUE(std::ranges::equal(store.find("norm.bias").grad.flat(), d_bias));
  EXPECT_NE(norm.bias.data(), norm.weight.data());
}

TEST(Norm, WithoutAWeightIsOneWithOnesAlsoWhenItMoves) {
  ParameterStore store(one_norm());
  fill(store.find("norm.weight").value, 1.0f);
  const Norm with = Norm::of(store, "norm.weight", {.eps = 0.1f});
  Norm first = Norm::without_weight(kNormWidth, {.eps = 0.1f});
  const Norm without = std::move(first);
  const Matrix x = random_matrix(4, 3 * kNormWidth, 2), dy = random_matrix(4, 3 * kNormWidth, 3);
  Matrix y(4, 3 * kNormWidth), dx(4, 3 * kNormWidth), expected(4, 3 * kNormWidth),
      expected_dx(4, 3 * kNormWidth);
  std::vector<float> inv_rms;
  with.forward(reference_rmsnorm(), x, expected, inv_rms);
  with.backward(reference_rmsnorm(), dy, x, inv_rms, expected_dx);
  without.forward(reference_rmsnorm(), x, y, inv_rms);
  without.backward(reference_rmsnorm(), dy, x, inv_rms, dx);
  EXPECT_TRUE(std::ranges::equal(y.view().flat(), expected.view().flat()));
  EXPECT_TRUE(std::ranges::equal(dx.view().flat(), expected_dx.view().flat()));
}

TEST(Norm, RefusesAWidthThatTheParameterDoesNotHave) {
  const ParameterStore store(one_norm());
  EXPECT_THROW(Norm::of(store, NormSpec{"norm.weight", kNormWidth + 1, {}}), ShapeError);
}

}  // namespace
}  // namespace moeloom::norm_test
