#include "moeloom/model/norm.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
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

TEST(Norm, RefusesAWidthThatTheParameterDoesNotHave) {
  const ParameterStore store(one_norm());
  EXPECT_THROW(Norm::of(store, NormSpec{"norm.weight", kNormWidth + 1, {}}), ShapeError);
}

TEST(OutputNorm, StandsBetweenABlocksOutputAndTheResidual) {
  ParameterStore store(one_norm());
  copy(random_matrix(1, kNormWidth, 1), store.find("norm.weight").value);
  const Norm norm = Norm::of(store, "norm.weight");
  const RmsNormKernel kernel = reference_rmsnorm();
  for (const Index rows : {0, 1, 5}) {
    OutputNorm output(norm);
    const Matrix x = random_matrix(rows, kNormWidth, 2);
    const Matrix residual = random_matrix(rows, kNormWidth, 3);
    Matrix hidden = Matrix::copy_of(residual);
    Matrix normed(rows, kNormWidth), d_input(rows, kNormWidth), expected(rows, kNormWidth);
    std::vector<float> inv_rms;
    copy(x, output.input(rows, kNormWidth));
    output.forward(kernel, hidden);
    norm.forward(kernel, x, normed, inv_rms);
    for (Index i = 0; i < normed.view().size(); ++i)
      EXPECT_EQ(hidden.view().data[i], residual.view().data[i] + normed.view().data[i]);
    output.backward(kernel, residual, d_input);
    norm.backward(kernel, residual, x, inv_rms, expected);
    EXPECT_TRUE(std::ranges::equal(d_input.view().flat(), expected.view().flat()));
  }
}

}  // namespace
}  // namespace moeloom
