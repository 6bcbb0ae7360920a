#include "moeloom/kernels/elementwise/swiglu.hpp"

#include "moeloom/base/errors.hpp"

#include <limits>
#include <string>

#include "elementwise/elementwise_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

struct Named {
  const char* name;
  SwigluKernel kernel;
};
const Named kKernels[] = {{"reference", reference_swiglu()}, {"fused", fused_swiglu()}};

/// Each formula, and each way through the gate.
const GatedActivation kActivations[] = {{},
                                        {Activation::kGeluTanh},
                                        {Activation::kGelu},
                                        {Activation::kGeluTanh, 0.95f},
                                        {Activation::kSilu, 0.4f},
                                        {Activation::kSilu, 0, RowScaleOn::kInputs},
                                        {Activation::kGelu, 0, RowScaleOn::kInputs},
                                        {.alpha = 1.702f, .limit = 1.25f, .up_offset = 1},
                                        {.act = Activation::kGeluTanh,
                                         .scale_on = RowScaleOn::kInputs,
                                         .alpha = 0.75f,
                                         .limit = 0.5f,
                                         .up_offset = -0.5f},
                                        {.scale_on = RowScaleOn::kInputs, .limit = 1.0f}};

std::string name_of(const GatedActivation& activation) {
  const char* const names[] = {"silu", "gelu_tanh", "gelu"};
  return names[static_cast<int>(activation.act)] + std::string(" ") + std::to_string(activation.sparsity) +
         (activation.scale_on == RowScaleOn::kInputs ? " inputs scaled" : "") + " limit " +
         std::to_string(activation.limit);
}

struct Size {
  Index rows;
  Index width;
};
const Size kSizes[] = {{0, 8}, {1, 1}, {1, 16}, {2, 3}, {5, 17}, {7, 20}, {3, 64}, {300, 132}};

struct Backward {
  Matrix d_gate_up, activated;
  std::vector<float> d_row_scale;
};

Backward backward(const SwigluKernel& kernel, const GatedActivation& activation, ConstMatrixView gate_up,
                  const std::vector<float>& row_scale, ConstMatrixView d_activated) {
  Backward result{Matrix(gate_up.rows, gate_up.cols), Matrix(d_activated.rows, d_activated.cols),
                  std::vector<float>(row_scale.size())};
  kernel.backward(activation, gate_up, row_scale, d_activated,
                  {result.d_gate_up, result.d_row_scale, result.activated});
  return result;
}

double act_of(Activation act, double x) {
  if (act == Activation::kSilu) return x / (1 + std::exp(-x));
  if (act == Activation::kGelu) return x * std::erfc(-x / std::sqrt(2)) / 2;
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

/// max(0, gate - (mean + z deviation)), with z from the inverse of what the distribution says.
std::vector<double> cut(std::vector<double> gate, double sparsity) {
  if (sparsity == 0) return gate;
  const double n = static_cast<double>(gate.size());
  double z = 0, mean = 0, variance = 0;
  for (double step = 4; step > 1e-13; step /= 2)
    z += std::erfc(-z / std::sqrt(2)) / 2 < sparsity ? step : -step;
  for (const double g : gate) mean += g / n;
  for (const double g : gate) variance += (g - mean) * (g - mean) / n;
  for (double& g : gate) g = std::max(0.0, g - mean - z * std::sqrt(variance));
  return gate;
}

/// row_scale * act(gate) * up in double, or of both times row_scale; it may be empty.
std::vector<double> formula(const GatedActivation& activation, const std::vector<double>& gate_up,
                            const std::vector<double>& row_scale, Size size) {
  std::vector<double> y;
  for (Index i = 0; i < size.rows; ++i) {
    const auto row = gate_up.begin() + 2 * i * size.width;
    const auto gate = cut({row, row + size.width}, static_cast<double>(activation.sparsity));
    const double scale = row_scale.empty() ? 1 : row_scale[static_cast<std::size_t>(i)];
    const bool of_inputs = activation.scale_on == RowScaleOn::kInputs;
    const double inputs = of_inputs ? scale : 1, result = of_inputs ? 1 : scale;
    const double alpha = activation.alpha, limit = activation.limit;
    for (Index j = 0; j < size.width; ++j) {
      const double up = std::clamp(inputs * row[size.width + j], -limit, limit) + activation.up_offset;
      const double kept = std::min(inputs * gate[static_cast<std::size_t>(j)], limit);
      y.push_back(result * up * act_of(activation.act, alpha * kept) / alpha);
    }
  }
  return y;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// A handful of rounded operations each: 1e-6 is eight units in the last place. A cutoff is a sum over the
// row.
TEST(Swiglu, FusedEqualsTheReferenceAtAnySizeAndStride) {
  for (const GatedActivation& activation : kActivations)
    for (const Size size : kSizes)
      for (const bool scaled : {false, true}) {
        const double tolerance = activation.sparsity > 0 ? 3e-6 : 1e-6;
        const GappedMatrix gate_up(size.rows, 2 * size.width, 1, 3.0), upstream(size.rows, size.width, 2);
        const auto scale = random_vector(scaled ? size.rows : 0, 3);
        GappedMatrix fused(size.rows, size.width, 4);
        Matrix plain(size.rows, size.width);
        reference_swiglu().forward(activation, gate_up, scale, plain);
        fused_swiglu().forward(activation, gate_up, scale, fused);
        const std::string which = name_of(activation) + ' ' + std::to_string(size.width);
        EXPECT_LE(worst_error(doubles_of(fused), doubles_of(plain)), tolerance) << which;
        EXPECT_TRUE(fused.gap_is_untouched());

        const Backward a = backward(reference_swiglu(), activation, gate_up, scale, upstream);
        const Backward b = backward(fused_swiglu(), activation, gate_up, scale, upstream);
        EXPECT_LE(worst_error(doubles_of(b.d_gate_up), doubles_of(a.d_gate_up)), tolerance) << which;
        EXPECT_LE(worst_error(doubles_of(b.activated), doubles_of(a.activated)), tolerance) << which;
        EXPECT_LE(worst_error(doubles_of(row_view(b.d_row_scale)), doubles_of(row_view(a.d_row_scale))),
                  2 * tolerance);
      }
}

TEST(Swiglu, ForwardAndBackwardAgreeWithTheFormulaInDouble) {
  for (const GatedActivation& activation : kActivations)
    for (const Size size : {Size{1, 1}, Size{2, 3}, Size{3, 17}, Size{2, 20}, Size{1, 100}})
      for (const bool scaled : {false, true}) {
        const Matrix gate_up = random_matrix(size.rows, 2 * size.width, 5, 2.0);
        const Matrix upstream = random_matrix(size.rows, size.width, 6);
        const auto row_scale = random_vector(scaled ? size.rows : 0, 7);
        auto x = doubles_of(gate_up), scale = doubles_of(row_view(row_scale));
        const auto loss = [&] { return dot(formula(activation, x, scale, size), doubles_of(upstream)); };
        const auto y = formula(activation, x, scale, size);
        const auto d_gate_up = central_differences(x, loss);
        const auto d_scale = central_differences(scale, loss);
        for (const auto& [name, kernel] : kKernels) {
          Matrix activated(size.rows, size.width);
          kernel.forward(activation, gate_up, row_scale, activated);
          const Backward got = backward(kernel, activation, gate_up, row_scale, upstream);
          const std::string which = name + (' ' + name_of(activation)) + ' ' + std::to_string(size.width);
          EXPECT_LE(worst_error(doubles_of(activated), y), 1e-6) << which;
          EXPECT_LE(worst_error(doubles_of(got.d_gate_up), d_gate_up), 2e-6) << which;
          EXPECT_LE(worst_error(doubles_of(row_view(got.d_row_scale)), d_scale), 1e-6) << which;
        }
      }
}

/// GPT-OSS's numbers beside its limits: a clamped input has no gradient, and one at the limit is not clamped.
TEST(Swiglu, ClampsGateFromAboveAndUpOnBothSidesWithoutAGradient) {
  const GatedActivation clamped{.alpha = 1.702f, .limit = 7, .up_offset = 1};
  const std::vector<float> gates = {8, 7, -8, 1, 1, 1, 1}, ups = {1, 1, 1, 8, -8, 7, -7};
  const Index width = std::ssize(gates);
  Matrix gate_up(1, 2 * width), upstream(1, width);
  std::ranges::copy(gates, gate_up.row(0));
  std::ranges::copy(ups, gate_up.row(0) + width);
  fill(upstream, 1.0f);
  for (const auto& [name, kernel] : kKernels) {
    const Backward got = backward(kernel, clamped, gate_up, {}, upstream);
    for (Index j = 0; j < width; ++j) {
      const double gate = std::min(gates[at(j)], 7.0f), up = std::clamp(ups[at(j)], -7.0f, 7.0f);
      const double value = gate / (1 + std::exp(-1.702 * gate)) * (up + 1);
      EXPECT_NEAR(got.activated.row(0)[j], value, 1e-6 * std::abs(value) + 1e-7) << name << ' ' << j;
      EXPECT_EQ(got.d_gate_up.row(0)[j] == 0, j == 0 || ups[at(j)] == -1) << name << ' ' << j;
      EXPECT_EQ(got.d_gate_up.row(0)[width + j] == 0, j == 3 || j == 4) << name << ' ' << j;
    }
  }
}

TEST(Swiglu, MayWriteOverItsInputs) {
  for (const auto& [name, kernel] : kKernels)
    for (const GatedActivation& activation : kActivations)
      for (const Size size : kSizes) {
        const Matrix gate_up = random_matrix(size.rows, 2 * size.width, 8),
                     upstream = random_matrix(size.rows, size.width, 9);
        const auto scale = random_vector(size.rows, 10);
        const Backward apart = backward(kernel, activation, gate_up, scale, upstream);
        Matrix x = Matrix::copy_of(gate_up), y = Matrix::copy_of(upstream);
        std::vector<float> d_scale(scale.size());
        kernel.backward(activation, x, scale, y, {x, d_scale, y});
        EXPECT_EQ(bits_of(x), bits_of(apart.d_gate_up)) << name << ' ' << name_of(activation);
        EXPECT_EQ(bits_of(y), bits_of(apart.activated)) << name << ' ' << name_of(activation);
        EXPECT_EQ(d_scale, apart.d_row_scale) << name << ' ' << name_of(activation);
      }
}

TEST(Swiglu, RecomputesInBackwardWhatForwardGave) {
  const Matrix gate_up = random_matrix(9, 2 * 37, 11), upstream = random_matrix(9, 37, 12);
  const auto scale = random_vector(9, 13);
  for (const auto& [name, kernel] : kKernels)
    for (const GatedActivation& activation : kActivations) {
      Matrix activated(9, 37);
      kernel.forward(activation, gate_up, scale, activated);
      const Backward back = backward(kernel, activation, gate_up, scale, upstream);
      // The products may be taken in another order: two roundings apart.
      EXPECT_LE(worst_error(doubles_of(back.activated), doubles_of(activated)), 2e-7)
          << name << ' ' << name_of(activation);
    }
}

TEST(Swiglu, CutsOffTheShareOfTheGateThatSparsityNames) {
  const Matrix gate_up = random_matrix(4, 2 * 5000, 18);
  for (const auto& [name, kernel] : kKernels)
    for (const float sparsity : {1e-30f, 0.05f, 0.5f, 0.95f}) {
      Matrix activated(4, 5000);
      kernel.forward({Activation::kGeluTanh, sparsity}, gate_up, {}, activated);
      for (Index i = 0; i < 4; ++i) {
        const auto zeros = std::count(activated.row(i), activated.row(i) + 5000, 0.0f);
        EXPECT_NEAR(static_cast<double>(zeros) / 5000, sparsity, 0.02) << name;
        EXPECT_TRUE(std::isfinite(activated.row(i)[0])) << name << ' ' << sparsity;
      }
    }
}

TEST(Swiglu, CutsOffARowOfEqualGatesWithoutAGradient) {
  Matrix gate_up(1, 12), upstream(1, 6);
  fill(gate_up, 0.75f);
  fill(upstream, 1.0f);
  for (const auto& [name, kernel] : kKernels) {
    const Backward got = backward(kernel, {Activation::kGeluTanh, 0.5f}, gate_up, {}, upstream);
    EXPECT_EQ(doubles_of(got.activated), std::vector<double>(6, 0.0)) << name;
    EXPECT_EQ(doubles_of(got.d_gate_up), std::vector<double>(12, 0.0)) << name;
  }
}

TEST(Swiglu, KnowsTheActivationsOfConfigsByName) {
  EXPECT_EQ(activation_named("silu"), Activation::kSilu);
  EXPECT_EQ(activation_named("swish"), Activation::kSilu);
  EXPECT_EQ(activation_named("gelu_pytorch_tanh"), Activation::kGeluTanh);
  EXPECT_EQ(activation_named("gelu_new"), Activation::kGeluTanh);
  EXPECT_EQ(activation_named("gelu"), Activation::kGelu);
  EXPECT_EQ(activation_named("relu"), std::nullopt);
  EXPECT_EQ(activation_named(""), std::nullopt);
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
    const Backward got = backward(kernel, {}, gate_up, {0.5f}, upstream);
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
  for (const GatedActivation& activation : kActivations) {
    const auto run = [&] { return backward(fused_swiglu(), activation, gate_up, scale, upstream); };
    const Backward one = on_threads(1, run), three = on_threads(3, run);
    EXPECT_EQ(bits_of(one.d_gate_up), bits_of(three.d_gate_up));
    EXPECT_EQ(bits_of(one.activated), bits_of(three.activated));
    EXPECT_EQ(one.d_row_scale, three.d_row_scale);
    for (const Index row : {Index{0}, Index{1}, Index{333}, rows - 1}) {
      GappedMatrix alone(1, 2 * width, 17);
      copy(gate_up.view().rows_from(row, 1), alone);
      const Backward got = backward(fused_swiglu(), activation, alone, {scale[static_cast<std::size_t>(row)]},
                                    upstream.view().rows_from(row, 1));
      EXPECT_EQ(bits_of(got.d_gate_up), bits_of(one.d_gate_up.view().rows_from(row, 1)));
      EXPECT_EQ(got.d_row_scale[0], one.d_row_scale[static_cast<std::size_t>(row)]);
    }
  }
}

TEST(Swiglu, WritesBf16AsABf16ProductWouldRoundIt) {
  for (const auto& [name, kernel] : kKernels)
    for (const GatedActivation& activation : kActivations)
      for (const Size size : kSizes) {
        const Matrix gate_up = random_matrix(size.rows, 2 * size.width, 20, 3.0);
        const Matrix upstream = random_matrix(size.rows, size.width, 21);
        const auto scale = random_vector(size.rows, 22);
        const Backward plain = backward(kernel, activation, gate_up, scale, upstream);
        RowMemory activated_memory, d_gate_up_memory;
        const Rows activated = activated_memory.reshape_uninitialised(DType::kBF16, size.rows, size.width);
        const Rows d_gate_up =
            d_gate_up_memory.reshape_uninitialised(DType::kBF16, size.rows, 2 * size.width);
        const std::string which = name + (' ' + name_of(activation)) + ' ' + std::to_string(size.width);
        Matrix forward(size.rows, size.width);
        kernel.forward(activation, gate_up, scale, forward);
        kernel.forward(activation, gate_up, scale, activated);
        EXPECT_EQ(half_bits_of(activated), rounded_bits_of(forward)) << which;
        std::vector<float> d_scale(scale.size());
        kernel.backward(activation, gate_up, scale, upstream, {d_gate_up, d_scale, activated});
        EXPECT_EQ(half_bits_of(activated), rounded_bits_of(plain.activated)) << which;
        EXPECT_EQ(half_bits_of(d_gate_up), rounded_bits_of(plain.d_gate_up)) << which;
        EXPECT_EQ(d_scale, plain.d_row_scale) << which;
      }
}

/// Of such a matrix the next row is asked for ahead, stretch by stretch, the last of which is a part.
TEST(Swiglu, GivesARowTheSameBitsInAMatrixLargerThanTheCache) {
  const Index rows = 8400, width = 1037;
  Matrix gate_up = Matrix::uninitialised(rows, 2 * width);
  for (Index i = 0; i < gate_up.view().size(); ++i)
    gate_up.view().data[i] = static_cast<float>(i % 7919) / 1000 - 4;
  Matrix whole(rows, width);
  RowMemory memory;
  const Rows half = memory.reshape_uninitialised(DType::kBF16, rows, width);
  const auto scale = random_vector(rows, 23);
  fused_swiglu().forward({}, gate_up, scale, whole);
  fused_swiglu().forward({}, gate_up, scale, half);
  EXPECT_EQ(half_bits_of(half), rounded_bits_of(whole));
  for (const Index row : {Index{0}, Index{8000}, rows - 1}) {
    Matrix alone(1, width);
    fused_swiglu().forward({}, gate_up.view().rows_from(row, 1), std::span(&scale[at(row)], 1), alone);
    EXPECT_EQ(bits_of(alone), bits_of(whole.view().rows_from(row, 1)));
  }
}

TEST(Swiglu, RefusesShapesThatDoNotFit) {
  Matrix gate_up(3, 8), activated(3, 4), wide(3, 5), longer(4, 4);
  const std::vector<float> two_scales(2);
  for (const auto& [name, kernel] : kKernels) {
    EXPECT_THROW(kernel.forward({}, gate_up, {}, wide), ShapeError) << name;
    EXPECT_THROW(kernel.forward({}, gate_up, {}, longer), ShapeError) << name;
    EXPECT_THROW(kernel.forward({}, gate_up, two_scales, activated), ShapeError) << name;
    EXPECT_THROW(kernel.backward({}, gate_up, {}, activated, {activated, {}, activated}), ShapeError) << name;
    EXPECT_THROW(kernel.backward({}, gate_up, std::vector<float>(3), activated, {gate_up, {}, activated}),
                 ShapeError);
    for (const float sparsity : {-0.1f, 1.0f, std::numeric_limits<float>::quiet_NaN()})
      EXPECT_THROW(kernel.forward({Activation::kSilu, sparsity}, gate_up, {}, activated), ShapeError) << name;
    EXPECT_THROW(kernel.forward({.sparsity = 0.5f, .limit = 7}, gate_up, {}, activated), ShapeError) << name;
    EXPECT_THROW(kernel.forward({.alpha = 0}, gate_up, {}, activated), ShapeError) << name;
    EXPECT_THROW(kernel.forward({.limit = 0}, gate_up, {}, activated), ShapeError) << name;
  }
}

}  // namespace
}  // namespace moeloom
