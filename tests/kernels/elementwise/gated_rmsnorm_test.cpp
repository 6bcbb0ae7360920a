#include "moeloom/base/errors.hpp"
#include "moeloom/kernels/elementwise/rmsnorm.hpp"

#include "elementwise/elementwise_testing.hpp"
#include "elementwise/rmsnorm_testing.hpp"
#include "support/golden_blocks.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

const RmsNormSize kSizes[] = {{0, 1, 8}, {1, 1, 1}, {3, 1, 20}, {4, 3, 7}, {2, 2, 67}, {520, 2, 16}};

/// A case's inputs, and what a kernel makes of them.
struct Case {
  explicit Case(RmsNormSize size, RmsNormSettings settings_ = {})
      : settings(settings_),
        x(random_matrix(size.rows, size.groups * size.width, 1)),
        gate(random_matrix(size.rows, x.cols(), 2, 2.0)),
        dy(random_matrix(size.rows, x.cols(), 3)),
        weight(random_vector(size.width, 4)),
        groups(size.rows * size.groups) {}

  RmsNormSettings settings;
  Matrix x, gate, dy;
  std::vector<float> weight;
  Index groups;
};

struct Result {
  Matrix y, dx, d_gate;
  std::vector<float> inv_rms, d_weight;
};
Result run(const RmsNormKernel& kernel, const Case& c) {
  Result r{Matrix(c.x.rows(), c.x.cols()), Matrix(c.x.rows(), c.x.cols()), Matrix(c.x.rows(), c.x.cols()),
           std::vector<float>(static_cast<std::size_t>(c.groups)), std::vector<float>(c.weight.size())};
  kernel.gated_forward(c.x, c.gate, c.weight, c.settings, r.y, r.inv_rms);
  kernel.gated_backward({c.x, c.weight, c.settings, r.inv_rms}, c.gate, c.dy, r.dx, r.d_gate, r.d_weight);
  return r;
}

/// RMSNorm(x) (offset + weight) silu(gate) in double.
std::vector<double> formula(const std::vector<double>& x, const std::vector<double>& gate,
                            const std::vector<double>& weight, RmsNormSettings settings) {
  std::vector<double> y(x.size());
  const std::size_t width = weight.size();
  for (std::size_t i = 0; i < x.size(); ++i) {
    double squares = 0;
    for (std::size_t j = i / width * width; j < (i / width + 1) * width; ++j) squares += x[j] * x[j];
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(width) + static_cast<double>(settings.eps)) *
           (weight[i % width] + settings.weight_offset) * gate[i] / (1 + std::exp(-gate[i]));
  }
  return y;
}

// The norm's tolerances, and a silu of some five units in the last place.
TEST(GatedRmsNorm, FusedEqualsTheReferenceAtAnySize) {
  for (const RmsNormSize size : kSizes) {
    const Case c(size);
    const Result plain = run(reference_rmsnorm(), c), fused = run(fused_rmsnorm(), c);
    EXPECT_LE(worst_error(doubles_of(fused.y), doubles_of(plain.y)), 2e-6) << size.rows << 'x' << size.width;
    EXPECT_LE(worst_error(doubles_of(fused.dx), doubles_of(plain.dx)), 4e-6);
    EXPECT_LE(worst_error(doubles_of(fused.d_gate), doubles_of(plain.d_gate)), 2e-6);
    EXPECT_LE(worst_error(doubles_of(row_view(fused.d_weight)), doubles_of(row_view(plain.d_weight))), 1e-5);
  }
}

TEST(GatedRmsNorm, AgreesWithTheFormulaAndItsCentralDifferences) {
  for (const RmsNormSettings settings : {RmsNormSettings{}, RmsNormSettings{.eps = 0.1f, .weight_offset = 1}})
    for (const RmsNormSize size : {RmsNormSize{1, 1, 1}, RmsNormSize{2, 1, 20}, RmsNormSize{2, 3, 7}}) {
      const Case c(size, settings);
      auto x = doubles_of(c.x), gate = doubles_of(c.gate), weight = doubles_of(row_view(c.weight));
      const auto loss = [&] {
        const auto y = formula(x, gate, weight, settings), u = doubles_of(c.dy);
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * u[i];
        return sum;
      };
      const auto dx = central_differences(x, loss), d_gate = central_differences(gate, loss),
                 d_weight = central_differences(weight, loss);
      for (const auto& [name, kernel] : kRmsNorms) {
        const Result got = run(kernel, c);
        EXPECT_LE(worst_error(doubles_of(got.y), formula(x, gate, weight, settings)), 2e-6) << name;
        EXPECT_LE(worst_error(doubles_of(got.dx), dx), 4e-6) << name;
        EXPECT_LE(worst_error(doubles_of(got.d_gate), d_gate), 2e-6) << name;
        EXPECT_LE(worst_error(doubles_of(row_view(got.d_weight)), d_weight), 4e-6) << name;
      }
    }
}

TEST(GatedRmsNorm, MayWriteOverItsInputs) {
  for (const auto& [name, kernel] : kRmsNorms)
    for (const RmsNormSize size : kSizes) {
      const Case c(size);
      const Result apart = run(kernel, c);
      Matrix over_x = Matrix::copy_of(c.x), over_gate = Matrix::copy_of(c.gate);
      Matrix d_gate = Matrix::copy_of(c.gate), dx = Matrix::copy_of(c.dy);
      std::vector<float> inv_rms(apart.inv_rms.size()), d_weight(apart.d_weight.size());
      kernel.gated_forward(over_x, c.gate, c.weight, c.settings, over_x, inv_rms);
      kernel.gated_forward(c.x, over_gate, c.weight, c.settings, over_gate, inv_rms);
      kernel.gated_backward({c.x, c.weight, c.settings, inv_rms}, d_gate, dx, dx, d_gate, d_weight);
      EXPECT_EQ(bits_of(over_x), bits_of(apart.y)) << name;
      EXPECT_EQ(bits_of(over_gate), bits_of(apart.y)) << name;
      EXPECT_EQ(bits_of(dx), bits_of(apart.dx)) << name;
      EXPECT_EQ(bits_of(d_gate), bits_of(apart.d_gate)) << name;
      EXPECT_EQ(d_weight, apart.d_weight) << name;
    }
}

TEST(GatedRmsNorm, GivesTheSameBitsOnAnyThreads) {
  const Case c({1100, 2, 65});
  const auto fused = [&] { return run(fused_rmsnorm(), c); };
  const Result one = on_threads(1, fused), three = on_threads(3, fused);
  EXPECT_EQ(bits_of(one.y), bits_of(three.y));
  EXPECT_EQ(bits_of(one.dx), bits_of(three.dx));
  EXPECT_EQ(bits_of(one.d_gate), bits_of(three.d_gate));
  EXPECT_EQ(one.d_weight, three.d_weight);
}

TEST(GatedRmsNorm, RefusesShapesThatDoNotFit) {
  Matrix x(2, 12), narrow(2, 6);
  const std::vector<float> weight(6);
  std::vector<float> four(4), d_weight(6);
  for (const auto& [name, kernel] : kRmsNorms) {
    EXPECT_THROW(kernel.gated_forward(x, narrow, weight, {}, x, four), ShapeError) << name;
    EXPECT_THROW(kernel.gated_forward(x, x, weight, {}, narrow, four), ShapeError) << name;
    EXPECT_THROW(kernel.gated_backward({x, weight, {}, four}, narrow, x, x, x, d_weight), ShapeError) << name;
    EXPECT_THROW(kernel.gated_backward({x, weight, {}, four}, x, x, x, narrow, d_weight), ShapeError) << name;
  }
}

TEST(GatedRmsNorm, GivesTheGoldenOutputAndGradients) {
  for_each_golden_block("GatedRmsNorm", [](const GoldenBlock& block) {
    for (const auto& [name, kernel] : kRmsNorms) {
      const auto matrix = [&](const std::string& tensor) {
        const auto values = block.tensors.floats(tensor);
        const Index cols = block.shape(tensor).back();
        return Matrix::copy_of({values.data(), static_cast<Index>(values.size()) / cols, cols});
      };
      Case c({1, 1, 1});
      c.x = matrix("input.hidden_states");
      c.gate = matrix("input.gate");
      c.dy = matrix("upstream_grad.output");
      c.weight = block.tensors.floats("weight.weight");
      c.groups = c.x.rows();
      const Result got = run(kernel, c);
      const auto error = [&](std::span<const float> result, const std::string& tensor) {
        return golden_error(result, testing::doubles_in(block.tensors, tensor), kBlockFloor);
      };
      EXPECT_LE(error(got.y.view().flat(), "output"), 1e-5) << block.name << ' ' << name;
      EXPECT_LE(error(got.dx.view().flat(), "grad.input.hidden_states"), 2e-5) << block.name << ' ' << name;
      EXPECT_LE(error(got.d_gate.view().flat(), "grad.input.gate"), 2e-5) << block.name << ' ' << name;
      EXPECT_LE(error(got.d_weight, "grad.weight.weight"), 2e-5) << block.name << ' ' << name;
    }
  });
}

}  // namespace
}  // namespace moeloom
