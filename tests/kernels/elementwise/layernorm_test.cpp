#include "kernels/elementwise/layernorm.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <algorithm>
#include <numeric>

#include "elementwise/elementwise_testing.hpp"
#include "support/golden_blocks.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

struct Size {
  Index rows, width;
};
const Size kSizes[] = {{0, 8}, {1, 1}, {1, 16}, {5, 20}, {3, 67}, {2, 1000}, {600, 33}};

struct Weights {
  std::vector<float> weight, bias;
  float eps = 1e-5f;

  explicit Weights(Index width) : weight(random_vector(width, 3)), bias(random_vector(width, 4)) {}
  operator LayerNormWeights() const { return {weight, bias, eps}; }
};

/// By the definition, in double.
std::vector<double> normed(const std::vector<double>& x, const std::vector<double>& weight,
                           const std::vector<double>& bias, double eps) {
  std::vector<double> y(x.size());
  const std::size_t width = weight.size();
  for (std::size_t begin = 0; begin < x.size(); begin += width) {
    const auto row = x.begin() + static_cast<std::ptrdiff_t>(begin);
    const double count = static_cast<double>(width);
    const double mean = std::accumulate(row, row + static_cast<std::ptrdiff_t>(width), 0.0) / count;
    double variance = 0;
    for (std::size_t j = 0; j < width; ++j) variance += (x[begin + j] - mean) * (x[begin + j] - mean) / count;
    for (std::size_t j = 0; j < width; ++j)
      y[begin + j] = (x[begin + j] - mean) / std::sqrt(variance + eps) * weight[j] + bias[j];
  }
  return y;
}

struct Result {
  Matrix y, dx;
  std::vector<float> inv, d_weight, d_bias;
};

Result run(ConstMatrixView x, ConstMatrixView dy, const LayerNormWeights& weights) {
  const std::size_t width = weights.weight.size();
  Result r{Matrix(x.rows, x.cols), Matrix(x.rows, x.cols), std::vector<float>(at(x.rows)),
           std::vector<float>(width), std::vector<float>(weights.bias.size())};
  layernorm_forward(x, weights, r.y, r.inv);
  layernorm_backward(x, weights, r.inv, dy, r.dx, {r.d_weight, r.d_bias});
  return r;
}

// Sums of up to 1000 numbers of both signs in fp32; the mean of the inputs is 3, so that a variance from mean
// squares would be off by far more.
TEST(LayerNorm, ForwardAndBackwardAgreeWithTheFormulaInDouble) {
  for (const Size size : kSizes) {
    if (size.rows > 10) continue;  // of two evaluations a number
    Matrix x = random_matrix(size.rows, size.width, 6);
    for (float& value : x.view().flat()) value += 3;
    const Matrix dy = random_matrix(size.rows, size.width, 7);
    const Weights weights(size.width);
    const Result got = run(x, dy, weights);
    auto values = doubles_of(x), weight = doubles_of(row_view(weights.weight)),
         bias = doubles_of(row_view(weights.bias));
    const auto formula = [&] { return normed(values, weight, bias, static_cast<double>(weights.eps)); };
    const auto loss = [&] {
      const auto y = formula(), upstream = doubles_of(dy);
      return std::inner_product(y.begin(), y.end(), upstream.begin(), 0.0);
    };
    EXPECT_LE(worst_error(doubles_of(got.y), formula()), 4e-6) << size.width;
    if (size.width > 1) {  // of one number nothing but the bias is left
      EXPECT_LE(worst_error(doubles_of(got.dx), central_differences(values, loss)), 1e-5) << size.width;
    }
    EXPECT_LE(worst_error(doubles_of(row_view(got.d_weight)), central_differences(weight, loss)), 1e-5);
    EXPECT_LE(worst_error(doubles_of(row_view(got.d_bias)), central_differences(bias, loss)), 1e-5);
  }
}

TEST(LayerNorm, ReadsAndWritesViewsWithGapsAndMayWriteOverTheGradient) {
  for (const Size size : kSizes) {
    const GappedMatrix x(size.rows, size.width, 1), dy(size.rows, size.width, 2);
    const Weights weights(size.width);
    const Result apart = run(x, dy, weights);
    GappedMatrix y(size.rows, size.width, 5), dx(size.rows, size.width, 2);
    std::vector<float> inv(apart.inv.size()), d_weight(apart.d_weight.size()), d_bias(apart.d_bias.size());
    layernorm_forward(x, weights, y.view(), inv);
    layernorm_backward(x, weights, inv, dx, dx, {d_weight, d_bias});
    EXPECT_EQ(bits_of(y), bits_of(apart.y));
    EXPECT_EQ(bits_of(dx), bits_of(apart.dx));
    EXPECT_EQ(d_weight, apart.d_weight);
    EXPECT_EQ(d_bias, apart.d_bias);
    EXPECT_TRUE(y.gap_is_untouched() && dx.gap_is_untouched());
  }
}

TEST(LayerNorm, GivesTheSameBitsOnAnyThreadsAndAddsGradientsInChunksOfRows) {
  const Index rows = 2 * kSumChunkRows + 77, width = 131;
  const Matrix x = random_matrix(rows, width, 12), dy = random_matrix(rows, width, 13);
  const Weights weights(width);
  const auto all = [&] { return run(x, dy, weights); };
  const Result one = on_threads(1, all), three = on_threads(3, all);
  EXPECT_EQ(bits_of(one.y), bits_of(three.y));
  EXPECT_EQ(bits_of(one.dx), bits_of(three.dx));
  EXPECT_EQ(one.d_weight, three.d_weight);
  EXPECT_EQ(one.d_bias, three.d_bias);
  std::vector<float> d_weight(at(width)), d_bias(at(width));
  Matrix dx(rows, width);
  for (Index begin = 0; begin < rows; begin += kSumChunkRows) {
    const Index count = std::min(kSumChunkRows, rows - begin);
    layernorm_backward(x.view().rows_from(begin, count), weights,
                       std::span(one.inv).subspan(at(begin), at(count)), dy.view().rows_from(begin, count),
                       dx.view().rows_from(begin, count), {d_weight, d_bias});
  }
  EXPECT_EQ(d_weight, one.d_weight);
  EXPECT_EQ(d_bias, one.d_bias);
}

TEST(LayerNorm, WritesBf16AsABf16ProductWouldRoundIt) {
  const Matrix x = random_matrix(9, 52, 31, 2.0);
  const Weights weights(52);
  std::vector<float> inv(9);
  Matrix plain(9, 52);
  RowMemory memory;
  const Rows y = memory.reshape_uninitialised(DType::kBF16, 9, 52);
  layernorm_forward(x, weights, plain, inv);
  layernorm_forward(x, weights, y, inv);
  EXPECT_EQ(half_bits_of(y), rounded_bits_of(plain));
}

TEST(LayerNorm, RefusesShapesThatDoNotFit) {
  Matrix x(2, 12), narrow(2, 8);
  const Weights weights(12), odd(11);
  std::vector<float> two(2), three(3), d(12), short_d(11);
  EXPECT_NO_THROW(layernorm_forward(x, weights, x, two));
  EXPECT_THROW(layernorm_forward(x, odd, x, two), ShapeError);
  EXPECT_THROW(layernorm_forward(x, weights, narrow, two), ShapeError);
  EXPECT_THROW(layernorm_forward(x, weights, x, three), ShapeError);
  EXPECT_THROW(layernorm_backward(x, weights, two, narrow, x, {d, d}), ShapeError);
  EXPECT_THROW(layernorm_backward(x, weights, two, x, x, {short_d, d}), ShapeError);
}

TEST(LayerNorm, WithoutABiasIsThatOfZeros) {
  for (const Size size : kSizes) {
    const Matrix x = random_matrix(size.rows, size.width, 21), dy = random_matrix(size.rows, size.width, 22);
    const std::vector<float> weight = random_vector(size.width, 3), zeros(at(size.width));
    const Result with = run(x, dy, {weight, zeros}), without = run(x, dy, {weight, {}});
    EXPECT_EQ(doubles_of(without.y), doubles_of(with.y));
    EXPECT_EQ(bits_of(without.dx), bits_of(with.dx));
    EXPECT_EQ(without.d_weight, with.d_weight);
    EXPECT_TRUE(without.d_bias.empty());
  }
}

TEST(LayerNorm, GivesTheGoldenOutputAndGradients) {
  for_each_golden_block("LayerNorm", [](const GoldenBlock& block) {
    const auto weight = block.tensors.floats("weight.weight");
    const bool biased = block.tensors.has("weight.bias");
    const auto bias = biased ? block.tensors.floats("weight.bias") : std::vector<float>();
    const auto cols = static_cast<Index>(weight.size());
    const auto values = block.tensors.floats("input.hidden_states");
    const auto upstream = block.tensors.floats("upstream_grad.output");
    const ConstMatrixView x(values.data(), static_cast<Index>(values.size()) / cols, cols);
    const auto eps = static_cast<float>(block.config.number_or("eps", 1e-5));
    const Result got = run(x, {upstream.data(), x.rows, cols}, {weight, bias, eps});
    const auto error = [&](std::span<const float> result, const std::string& tensor) {
      return golden_error(result, testing::doubles_in(block.tensors, tensor), kBlockFloor);
    };
    EXPECT_LE(error(got.y.view().flat(), "output"), 1e-5) << block.name;
    EXPECT_LE(error(got.dx.view().flat(), "grad.input.hidden_states"), 2e-5) << block.name;
    EXPECT_LE(error(got.d_weight, "grad.weight.weight"), 2e-5) << block.name;
    if (biased) {
      EXPECT_LE(error(got.d_bias, "grad.weight.bias"), 2e-5) << block.name;
    }
  });
}

}  // namespace
}  // namespace moeloom
