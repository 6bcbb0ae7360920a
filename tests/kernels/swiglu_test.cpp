#include "moeloom/kernels/swiglu.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/gemm.hpp"

#include "elementwise_testing.hpp"
#include "support/golden.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

struct Named {
  const char* name;
  SwigluKernel kernel;
};
const Named kKernels[] = {{"reference", reference_swiglu()}, {"fused", fused_swiglu()}};

struct Size {
  Index rows;
  Index width;
};
const Size kSizes[] = {{0, 8}, {1, 1}, {1, 16}, {2, 3}, {5, 17}, {7, 20}, {3, 64}, {300, 132}};

struct Backward {
  Matrix d_gate_up, activated;
  std::vector<float> d_row_scale;
};

Backward backward(const SwigluKernel& kernel, ConstMatrixView gate_up, const std::vector<float>& row_scale,
                  ConstMatrixView d_activated) {
  Backward result{Matrix(gate_up.rows, gate_up.cols), Matrix(d_activated.rows, d_activated.cols),
                  std::vector<float>(row_scale.size())};
  kernel.backward(gate_up, row_scale, d_activated, result.d_gate_up, result.d_row_scale, result.activated);
  return result;
}

/// <upstream, row_scale * silu(gate) * up> in double; row_scale may be empty.
double loss_of(const std::vector<double>& gate_up, const std::vector<double>& row_scale,
               const std::vector<double>& upstream, Size size) {
  double loss = 0;
  const auto width = static_cast<std::size_t>(size.width);
  for (std::size_t i = 0; i < static_cast<std::size_t>(size.rows); ++i)
    for (std::size_t j = 0; j < width; ++j) {
      const double gate = gate_up[2 * i * width + j], up = gate_up[(2 * i + 1) * width + j];
      loss += upstream[i * width + j] * (row_scale.empty() ? 1 : row_scale[i]) * up * gate /
              (1 + std::exp(-gate));
    }
  return loss;
}

// A handful of rounded operations each: 1e-6 is eight units in the last place.
TEST(Swiglu, FusedEqualsTheReferenceAtAnySizeAndStride) {
  for (const Size size : kSizes)
    for (const bool scaled : {false, true}) {
      const GappedMatrix gate_up(size.rows, 2 * size.width, 1, 3.0), upstream(size.rows, size.width, 2);
      const auto scale = random_vector(scaled ? size.rows : 0, 3);
      GappedMatrix fused(size.rows, size.width, 4);
      Matrix plain(size.rows, size.width);
      reference_swiglu().forward(gate_up, scale, plain);
      fused_swiglu().forward(gate_up, scale, fused);
      EXPECT_LE(worst_error(doubles_of(fused), doubles_of(plain)), 1e-6) << size.rows << 'x' << size.width;
      EXPECT_TRUE(fused.gap_is_untouched());

      const Backward a = backward(reference_swiglu(), gate_up, scale, upstream);
      const Backward b = backward(fused_swiglu(), gate_up, scale, upstream);
      EXPECT_LE(worst_error(doubles_of(b.d_gate_up), doubles_of(a.d_gate_up)), 1e-6);
      EXPECT_LE(worst_error(doubles_of(b.activated), doubles_of(a.activated)), 1e-6);
      EXPECT_LE(worst_error(doubles_of(row_view(b.d_row_scale)), doubles_of(row_view(a.d_row_scale))), 2e-6);
    }
}

TEST(Swiglu, BackwardAgreesWithCentralDifferences) {
  for (const Size size : {Size{1, 1}, Size{2, 3}, Size{3, 17}, Size{2, 20}})
    for (const bool scaled : {false, true}) {
      const Matrix gate_up = random_matrix(size.rows, 2 * size.width, 5, 2.0);
      const Matrix upstream = random_matrix(size.rows, size.width, 6);
      const auto row_scale = random_vector(scaled ? size.rows : 0, 7);
      auto x = doubles_of(gate_up), scale = doubles_of(row_view(row_scale));
      const auto loss = [&] { return loss_of(x, scale, doubles_of(upstream), size); };
      const auto d_gate_up = central_differences(x, loss);
      const auto d_scale = central_differences(scale, loss);
      for (const auto& [name, kernel] : kKernels) {
        const Backward got = backward(kernel, gate_up, row_scale, upstream);
        EXPECT_LE(worst_error(doubles_of(got.d_gate_up), d_gate_up), 1e-6) << name;
        EXPECT_LE(worst_error(doubles_of(row_view(got.d_row_scale)), d_scale), 1e-6) << name;
      }
    }
}

TEST(Swiglu, MayWriteOverItsInputs) {
  for (const auto& [name, kernel] : kKernels)
    for (const Size size : kSizes) {
      const Matrix gate_up = random_matrix(size.rows, 2 * size.width, 8),
                   upstream = random_matrix(size.rows, size.width, 9);
      const auto scale = random_vector(size.rows, 10);
      const Backward apart = backward(kernel, gate_up, scale, upstream);
      Matrix x = Matrix::copy_of(gate_up), y = Matrix::copy_of(upstream);
      std::vector<float> d_scale(scale.size());
      kernel.backward(x, scale, y, x, d_scale, y);
      EXPECT_EQ(bits_of(x), bits_of(apart.d_gate_up)) << name;
      EXPECT_EQ(bits_of(y), bits_of(apart.activated)) << name;
      EXPECT_EQ(d_scale, apart.d_row_scale) << name;
    }
}

TEST(Swiglu, RecomputesInBackwardWhatForwardGave) {
  const Matrix gate_up = random_matrix(9, 2 * 37, 11), upstream = random_matrix(9, 37, 12);
  const auto scale = random_vector(9, 13);
  for (const auto& [name, kernel] : kKernels) {
    Matrix activated(9, 37);
    kernel.forward(gate_up, scale, activated);
    // The products may be taken in another order: two roundings apart.
    EXPECT_LE(
        worst_error(doubles_of(backward(kernel, gate_up, scale, upstream).activated), doubles_of(activated)),
        2e-7)
        << name;
  }
}

TEST(Swiglu, IsAccurateAndFiniteForLargeGates) {
  const std::vector<float> gates = {-3e38f, -1e4f, -104, -90, -89, -88, -40, -20,
                                    0,      20,    40,   88,  89,  90,  104, 1e4f};
  const Index width = static_cast<Index>(gates.size());
  Matrix gate_up(1, 2 * width), upstream(1, width);
  std::copy(gates.begin(), gates.end(), gate_up.row(0));
  std::fill_n(gate_up.row(0) + width, width, 1.5f);
  fill(upstream, 2.0f);
  for (const auto& [name, kernel] : kKernels) {
    const Backward got = backward(kernel, gate_up, {0.5f}, upstream);
    for (Index j = 0; j < width; ++j) {
      const double gate = gates[static_cast<std::size_t>(j)];
      const double sigmoid = 1 / (1 + std::exp(-gate)), complement = 1 / (1 + std::exp(gate));
      const double value = gate * sigmoid, slope = sigmoid * (1 + gate * complement);
      // Relative, down to the smallest normal numbers: there sigmoid itself has lost its last bits.
      const auto near = [&](float x, double truth) {
        return std::abs(x - truth) <= 1e-6 * std::abs(truth) + 1e-37;
      };
      EXPECT_TRUE(near(got.activated.row(0)[j], 0.75 * value)) << name << ' ' << gate;
      EXPECT_TRUE(near(got.d_gate_up.row(0)[j], 1.5 * slope)) << name << ' ' << gate;
      EXPECT_TRUE(near(got.d_gate_up.row(0)[width + j], value)) << name << ' ' << gate;
    }
  }
}

TEST(Swiglu, GivesARowTheSameBitsWhereverItStandsAndOnAnyThreads) {
  const Index rows = 700, width = 131;
  const Matrix gate_up = random_matrix(rows, 2 * width, 14), upstream = random_matrix(rows, width, 15);
  const auto scale = random_vector(rows, 16);
  const auto run = [&] { return backward(fused_swiglu(), gate_up, scale, upstream); };
  const Backward one = on_threads(1, run), three = on_threads(3, run);
  EXPECT_EQ(bits_of(one.d_gate_up), bits_of(three.d_gate_up));
  EXPECT_EQ(bits_of(one.activated), bits_of(three.activated));
  EXPECT_EQ(one.d_row_scale, three.d_row_scale);
  for (const Index row : {Index{0}, Index{1}, Index{333}, rows - 1}) {
    GappedMatrix alone(1, 2 * width, 17);
    copy(gate_up.view().rows_from(row, 1), alone);
    const Backward got = backward(fused_swiglu(), alone, {scale[static_cast<std::size_t>(row)]},
                                  upstream.view().rows_from(row, 1));
    EXPECT_EQ(bits_of(got.d_gate_up), bits_of(one.d_gate_up.view().rows_from(row, 1)));
    EXPECT_EQ(got.d_row_scale[0], one.d_row_scale[static_cast<std::size_t>(row)]);
  }
}

TEST(Swiglu, RefusesShapesThatDoNotFit) {
  Matrix gate_up(3, 8), activated(3, 4), wide(3, 5), longer(4, 4);
  const std::vector<float> two_scales(2);
  for (const auto& [name, kernel] : kKernels) {
    EXPECT_THROW(kernel.forward(gate_up, {}, wide), ShapeError) << name;
    EXPECT_THROW(kernel.forward(gate_up, {}, longer), ShapeError) << name;
    EXPECT_THROW(kernel.forward(gate_up, two_scales, activated), ShapeError) << name;
    EXPECT_THROW(kernel.backward(gate_up, {}, activated, activated, {}, activated), ShapeError) << name;
    EXPECT_THROW(kernel.backward(gate_up, std::vector<float>(3), activated, gate_up, {}, activated),
                 ShapeError);
  }
}

Matrix matrix_of(const GoldenBlock& block, const std::string& name) {
  const auto shape = block.shape(name);
  const Index cols = shape.back();
  Matrix m(block.tensors.info(name).elements() / cols, cols);
  block.tensors.read(name, 0, m.view().flat());
  return m;
}

TEST(Swiglu, GivesTheGoldenMlpAndItsGradients) {
  for (const auto& folder : golden_cases("blocks", of_class({"Qwen3MLP"})))
    for (const auto& [name, kernel] : kKernels) {
      const GoldenBlock block(folder);
      const Matrix x = matrix_of(block, "input.hidden_states"), dy = matrix_of(block, "upstream_grad.output");
      const Matrix gate = matrix_of(block, "weight.gate_proj.weight"),
                   up = matrix_of(block, "weight.up_proj.weight");
      const Matrix down = matrix_of(block, "weight.down_proj.weight");
      const Index width = gate.rows();
      const auto check = [&, &name = name](const Matrix& got, const std::string& tensor, double tolerance) {
        EXPECT_LE(golden_error(got.view().flat(), block.tensors.doubles(tensor), kBlockFloor), tolerance)
            << block.name << ' ' << name << ' ' << tensor;
      };
      Matrix gate_up(x.rows(), 2 * width), activated(x.rows(), width), y(x.rows(), down.rows());
      matmul(x, gate, gate_up.view().cols_from(0, width));
      matmul(x, up, gate_up.view().cols_from(width, width));
      kernel.forward(gate_up, {}, activated);
      matmul(activated, down, y);
      check(y, "output", 1e-5);

      Matrix d_activated(x.rows(), width), dx(x.rows(), x.cols());
      matmul_input_grad(dy, down, d_activated);
      kernel.backward(gate_up, {}, d_activated, gate_up, {}, d_activated);
      Matrix d_gate(width, x.cols()), d_up(width, x.cols()), d_down(down.rows(), width);
      matmul_weight_grad(dy, d_activated, d_down);
      matmul_weight_grad(gate_up.view().cols_from(0, width), x, d_gate);
      matmul_weight_grad(gate_up.view().cols_from(width, width), x, d_up);
      matmul_input_grad(gate_up.view().cols_from(0, width), gate, dx);
      matmul_input_grad(gate_up.view().cols_from(width, width), up, dx, Write::kAdd);
      check(d_down, "grad.weight.down_proj.weight", 2e-5);
      check(d_gate, "grad.weight.gate_proj.weight", 2e-5);
      check(d_up, "grad.weight.up_proj.weight", 2e-5);
      check(dx, "grad.input.hidden_states", 2e-5);
    }
}

}  // namespace
}  // namespace moeloom
