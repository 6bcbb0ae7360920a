#include "model/parts/branch_output.hpp"

#include <algorithm>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

constexpr Index kBranchWidth = 6;
const NormSpec kNorm = {"norm.weight", kBranchWidth, {}};

std::vector<ParameterSpec> output_norm_parameters() {
  ParameterSpec spec;
  spec.name = kNorm.name;
  spec.rows = 1;
  spec.cols = kBranchWidth;
  return {spec};
}

struct Both {
  Matrix hidden, d_input;
  std::vector<float> d_weight;
};

/// hidden += output(x), then its backward with the residual as the gradient.
Both run(const std::optional<NormSpec>& norm, float scale, const Matrix& x, const Matrix& residual) {
  const ParameterStore store(output_norm_parameters());
  copy(random_matrix(1, kBranchWidth, 1), store.find(kNorm.name).value);
  std::optional<BranchOutput> output = BranchOutput::of(store, norm, scale);
  Both both{Matrix::copy_of(residual), Matrix(x.rows(), kBranchWidth), {}};
  copy(x, output->input(x.rows(), kBranchWidth));
  output->forward(reference_rmsnorm(), both.hidden);
  output->backward(reference_rmsnorm(), residual, both.d_input);
  const auto grad = store.find(kNorm.name).grad.flat();
  both.d_weight.assign(grad.begin(), grad.end());
  return both;
}

TEST(BranchOutput, NormsAndScalesWhatIsAddedToTheStream) {
  for (const Index rows : {0, 1, 5, 200}) {
    const Matrix x = random_matrix(rows, kBranchWidth, 2), residual = random_matrix(rows, kBranchWidth, 3);
    const Both normed = run(kNorm, 1, x, residual), scaled = run(std::nullopt, 0.5f, x, residual),
               both = run(kNorm, 0.5f, x, residual);
    for (Index i = 0; i < x.view().size(); ++i) {
      const float before = residual.view().data[i];
      EXPECT_EQ(scaled.hidden.view().data[i], before + 0.5f * x.view().data[i]);
      EXPECT_EQ(scaled.d_input.view().data[i], 0.5f * before);
      // Half of a number is exact: both parts round where the whole does, but for the sum with the stream.
      EXPECT_NEAR(both.hidden.view().data[i], before + 0.5f * (normed.hidden.view().data[i] - before), 1e-6);
      EXPECT_EQ(both.d_input.view().data[i], 0.5f * normed.d_input.view().data[i]);
    }
    for (std::size_t j = 0; j < normed.d_weight.size(); ++j)
      EXPECT_EQ(both.d_weight[j], 0.5f * normed.d_weight[j]);
  }
}

TEST(BranchOutput, IsThatOfANormAloneWithoutAScale) {
  const Matrix x = random_matrix(5, kBranchWidth, 2), residual = random_matrix(5, kBranchWidth, 3);
  const Both both = run(kNorm, 1, x, residual);
  const ParameterStore store(output_norm_parameters());
  copy(random_matrix(1, kBranchWidth, 1), store.find(kNorm.name).value);
  const Norm norm = Norm::of(store, kNorm);
  Matrix normed(5, kBranchWidth), d_input(5, kBranchWidth);
  std::vector<float> inv_rms;
  norm.forward(reference_rmsnorm(), x, normed, inv_rms);
  add(residual, normed);
  norm.backward(reference_rmsnorm(), residual, x, inv_rms, d_input);
  EXPECT_TRUE(std::ranges::equal(both.hidden.view().flat(), normed.view().flat()));
  EXPECT_TRUE(std::ranges::equal(both.d_input.view().flat(), d_input.view().flat()));
}

TEST(BranchOutput, IsNotThereWhereABlockAddsItsOutputItself) {
  const ParameterStore store(std::vector<ParameterSpec>{});
  EXPECT_FALSE(BranchOutput::of(store, std::nullopt, 1).has_value());
}

}  // namespace
}  // namespace moeloom
