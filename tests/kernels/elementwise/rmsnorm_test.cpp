#include "moeloom/kernels/elementwise/rmsnorm.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/tensor/gemm.hpp"

#include "elementwise/elementwise_testing.hpp"
#include "elementwise/rmsnorm_testing.hpp"
#include "support/golden_blocks.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using namespace testing;

constexpr RmsNormSettings kPlain = {.eps = 1e-6f};
constexpr RmsNormSettings kGemma = {.eps = 1e-6f, .weight_offset = 1};

const RmsNormSize kSizes[] = {{0, 1, 8},  {1, 1, 1},  {1, 1, 16}, {5, 1, 20},   {3, 1, 36},   {4, 3, 20},
                              {2, 4, 36}, {7, 2, 64}, {3, 1, 67}, {2, 1, 1000}, {600, 1, 33}, {520, 4, 32}};

struct Forward {
  Matrix y;
  std::vector<float> inv_rms;
};
Forward forward(const RmsNormKernel& kernel, ConstMatrixView x, const std::vector<float>& weight,
                RmsNormSettings settings = kPlain) {
  const auto groups = x.cols / static_cast<Index>(weight.size());
  Forward result{Matrix(x.rows, x.cols), std::vector<float>(static_cast<std::size_t>(x.rows * groups))};
  kernel.forward(x, weight, settings, result.y, result.inv_rms);
  return result;
}

struct Backward {
  Matrix dx;
  std::vector<float> d_weight;
};
Backward backward(const RmsNormKernel& kernel, ConstMatrixView dy, ConstMatrixView x,
                  const std::vector<float>& weight, const std::vector<float>& inv_rms,
                  RmsNormSettings settings = kPlain) {
  Backward result{Matrix(x.rows, x.cols), std::vector<float>(weight.size())};
  kernel.backward({x, weight, settings, inv_rms}, dy, result.dx, result.d_weight);
  return result;
}

std::vector<double> normed(const std::vector<double>& x, const std::vector<double>& weight,
                           RmsNormSettings settings) {
  std::vector<double> y(x.size());
  const std::size_t width = weight.size();
  for (std::size_t begin = 0; begin < x.size(); begin += width) {
    double squares = 0;
    for (std::size_t j = 0; j < width; ++j) squares += x[begin + j] * x[begin + j];
    const double rms = std::sqrt(squares / static_cast<double>(width) + static_cast<double>(settings.eps));
    for (std::size_t j = 0; j < width; ++j)
      y[begin + j] = x[begin + j] / rms * (settings.weight_offset + weight[j]);
  }
  return y;
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Sums of up to 1000 positive squares in 16 or more lanes, and two products: below 1e-6. d_weight sums up to
// 2080 terms of both signs in fp32: 1e-5.
TEST(RmsNorm, FusedEqualsTheReferenceAtAnySizeAndStride) {
  for (const RmsNormSize size : kSizes) {
    const Index cols = size.groups * size.width;
    const GappedMatrix x(size.rows, cols, 1), dy(size.rows, cols, 2);
    const auto weight = random_vector(size.width, 3);
    const Forward plain = forward(reference_rmsnorm(), x, weight);
    GappedMatrix y(size.rows, cols, 4), dx(size.rows, cols, 5);
    std::vector<float> inv_rms(plain.inv_rms.size()), d_weight(weight.size());
    fused_rmsnorm().forward(x, weight, kPlain, y, inv_rms);
    fused_rmsnorm().backward({x, weight, kPlain, inv_rms}, dy, dx, d_weight);
    const Backward plain_back = backward(reference_rmsnorm(), dy, x, weight, plain.inv_rms);

    EXPECT_LE(worst_error(doubles_of(y), doubles_of(plain.y)), 1e-6) << size.rows << 'x' << size.width;
    EXPECT_LE(worst_error(doubles_of(row_view(inv_rms)), doubles_of(row_view(plain.inv_rms))), 1e-6);
    EXPECT_LE(worst_error(doubles_of(dx), doubles_of(plain_back.dx)), 2e-6) << size.rows << 'x' << size.width;
    EXPECT_LE(worst_error(doubles_of(row_view(d_weight)), doubles_of(row_view(plain_back.d_weight))), 1e-5);
    EXPECT_TRUE(y.gap_is_untouched() && dx.gap_is_untouched());
  }
}

TEST(RmsNorm, ForwardAndBackwardAgreeWithTheFormulaInDouble) {
  for (const RmsNormSettings settings : {kPlain, kGemma, RmsNormSettings{.eps = 0.5f}})
    for (const RmsNormSize size : {RmsNormSize{1, 1, 1}, RmsNormSize{3, 1, 20}, RmsNormSize{2, 1, 36},
                                   RmsNormSize{2, 3, 20}, RmsNormSize{2, 1, 130}}) {
      const Index cols = size.groups * size.width;
      const Matrix x = random_matrix(size.rows, cols, 6), dy = random_matrix(size.rows, cols, 7);
      const auto weight = random_vector(size.width, 8);
      auto values = doubles_of(x), weights = doubles_of(row_view(weight));
      const auto loss = [&] { return dot(normed(values, weights, settings), doubles_of(dy)); };
      const auto dx = central_differences(values, loss), dw = central_differences(weights, loss);
      for (const auto& [name, kernel] : kRmsNorms) {
        const Forward got = forward(kernel, x, weight, settings);
        const Backward back = backward(kernel, dy, x, weight, got.inv_rms, settings);
        EXPECT_LE(worst_error(doubles_of(got.y), normed(values, weights, settings)), 1e-6) << name;
        EXPECT_LE(worst_error(doubles_of(back.dx), dx), 2e-6) << name << ' ' << size.width;
        EXPECT_LE(worst_error(doubles_of(row_view(back.d_weight)), dw), 2e-6) << name;
      }
    }
}

TEST(RmsNorm, MayWriteOverItsInputs) {
  for (const auto& [name, kernel] : kRmsNorms)
    for (const RmsNormSize size : kSizes) {
      const Index cols = size.groups * size.width;
      const Matrix x = random_matrix(size.rows, cols, 9), dy = random_matrix(size.rows, cols, 10);
      const auto weight = random_vector(size.width, 11);
      const Forward apart = forward(kernel, x, weight);
      const Backward back_apart = backward(kernel, dy, x, weight, apart.inv_rms);

      Matrix y = Matrix::copy_of(x), dx = Matrix::copy_of(dy);
      std::vector<float> inv_rms(apart.inv_rms.size()), d_weight(weight.size());
      kernel.forward(y, weight, kPlain, y, inv_rms);
      kernel.backward({x, weight, kPlain, inv_rms}, dx, dx, d_weight);
      EXPECT_EQ(bits_of(y), bits_of(apart.y)) << name;
      EXPECT_EQ(inv_rms, apart.inv_rms) << name;
      EXPECT_EQ(bits_of(dx), bits_of(back_apart.dx)) << name;
      EXPECT_EQ(d_weight, back_apart.d_weight) << name;
    }
}

TEST(RmsNorm, GivesARowTheSameBitsWhereverItStandsAndOnAnyThreads) {
  const Index rows = 1100, width = 131;
  const Matrix x = random_matrix(rows, width, 12), dy = random_matrix(rows, width, 13);
  const auto weight = random_vector(width, 14);
  const auto run_forward = [&] { return forward(fused_rmsnorm(), x, weight); };
  const Forward one = on_threads(1, run_forward), three = on_threads(3, run_forward);
  EXPECT_EQ(bits_of(one.y), bits_of(three.y));
  EXPECT_EQ(one.inv_rms, three.inv_rms);
  const auto run_backward = [&] { return backward(fused_rmsnorm(), dy, x, weight, one.inv_rms); };
  const Backward back_one = on_threads(1, run_backward), back_three = on_threads(3, run_backward);
  EXPECT_EQ(bits_of(back_one.dx), bits_of(back_three.dx));
  EXPECT_EQ(back_one.d_weight, back_three.d_weight);
  for (const Index row : {Index{0}, Index{1}, Index{555}, rows - 1}) {
    GappedMatrix alone(1, width, 15);
    copy(x.view().rows_from(row, 1), alone);
    const Forward got = forward(fused_rmsnorm(), alone, weight);
    EXPECT_EQ(bits_of(got.y), bits_of(one.y.view().rows_from(row, 1)));
    const Backward back = backward(fused_rmsnorm(), dy.view().rows_from(row, 1), alone, weight, got.inv_rms);
    EXPECT_EQ(bits_of(back.dx), bits_of(back_one.dx.view().rows_from(row, 1)));
  }
}

// Beyond the cache the result takes another way to memory.
TEST(RmsNorm, GivesARowTheSameBitsInAMatrixLargerThanTheCache) {
  const Index rows = 2100, groups = 2, width = 2048;
  const Matrix x = random_matrix(rows, groups * width, 21);
  const auto weight = random_vector(width, 22);
  const Forward whole = forward(fused_rmsnorm(), x, weight, kGemma);
  const Forward three = on_threads(3, [&] { return forward(fused_rmsnorm(), x, weight, kGemma); });
  EXPECT_EQ(whole.inv_rms, three.inv_rms);
  for (const Index row : {Index{0}, Index{1}, Index{1050}, rows - 1}) {
    const Forward alone = forward(fused_rmsnorm(), x.view().rows_from(row, 1), weight, kGemma);
    EXPECT_EQ(bits_of(whole.y.view().rows_from(row, 1)), bits_of(alone.y)) << row;
    EXPECT_EQ(bits_of(three.y.view().rows_from(row, 1)), bits_of(alone.y)) << row;
  }
  Matrix dx = random_matrix(rows, groups * width, 23);
  const Backward apart = backward(fused_rmsnorm(), dx, x, weight, whole.inv_rms, kGemma);
  std::vector<float> d_weight(weight.size());
  fused_rmsnorm().backward({x, weight, kGemma, whole.inv_rms}, dx, dx, d_weight);  // stays in the cache
  EXPECT_EQ(bits_of(apart.dx), bits_of(dx));
  EXPECT_EQ(apart.d_weight, d_weight);
}

/// The last size is written around the cache.
TEST(RmsNorm, WritesBf16AsABf16ProductWouldRoundIt) {
  std::vector<RmsNormSize> sizes(std::begin(kSizes), std::end(kSizes));
  sizes.push_back({16500, 2, 512});
  for (const RmsNormSize size : sizes)
    for (const auto& [name, kernel] : kRmsNorms) {
      const Matrix x = random_matrix(size.rows, size.groups * size.width, 31, 2.0);
      const auto weight = random_vector(size.width, 32);
      const Forward plain = forward(kernel, x, weight, kGemma);
      RowMemory memory;
      const Rows y = memory.reshape_uninitialised(DType::kBF16, x.rows(), x.cols());
      std::vector<float> inv_rms(plain.inv_rms.size());
      kernel.forward(x, weight, kGemma, y, inv_rms);
      EXPECT_EQ(half_bits_of(y), rounded_bits_of(plain.y)) << name << ' ' << size.width;
      EXPECT_EQ(inv_rms, plain.inv_rms) << name << ' ' << size.width;
    }
}

TEST(RmsNorm, AddsTheWeightGradientInChunksOfRowsInOrder) {
  for (const auto& [name, kernel] : kRmsNorms)
    for (const Index groups : {Index{1}, Index{3}}) {
      const Index rows = 2 * kSumChunkRows + 77, width = 20;
      const Matrix x = random_matrix(rows, groups * width, 16), dy = random_matrix(rows, groups * width, 17);
      const auto weight = random_vector(width, 18), before = random_vector(width, 19);
      const Forward norm = forward(kernel, x, weight);
      Matrix dx(rows, groups * width);
      std::vector<float> whole = before, by_chunk = before;
      kernel.backward({x, weight, kPlain, norm.inv_rms}, dy, dx, whole);
      for (Index begin = 0; begin < rows; begin += kSumChunkRows) {
        const Index count = std::min(kSumChunkRows, rows - begin);
        const auto part =
            std::span(norm.inv_rms)
                .subspan(static_cast<std::size_t>(begin * groups), static_cast<std::size_t>(count * groups));
        kernel.backward({x.view().rows_from(begin, count), weight, kPlain, part},
                        dy.view().rows_from(begin, count), dx.view().rows_from(begin, count), by_chunk);
      }
      EXPECT_EQ(whole, by_chunk) << name;
      EXPECT_NE(whole, before) << name;
    }
}

TEST(RmsNorm, GivesZeroForAZeroRow) {
  const std::vector<float> weight(24, 2.0f);
  const Matrix x(2, 24), dy = random_matrix(2, 24, 20);
  for (const auto& [name, kernel] : kRmsNorms) {
    const Forward got = forward(kernel, x, weight);
    EXPECT_EQ(doubles_of(got.y), std::vector<double>(48, 0.0)) << name;
    EXPECT_NEAR(got.inv_rms[0], 1000.0, 1e-3) << name;
    EXPECT_EQ(backward(kernel, dy, x, weight, got.inv_rms).d_weight, std::vector<float>(24, 0.0f)) << name;
  }
}

TEST(RmsNorm, RefusesShapesThatDoNotFit) {
  Matrix x(2, 12), narrow(2, 8);
  const std::vector<float> weight(6), odd(5), none;
  std::vector<float> four(4), two(2), d_weight(6), short_d_weight(5);
  for (const auto& [name, kernel] : kRmsNorms) {
    EXPECT_NO_THROW(kernel.forward(x, weight, kPlain, x, four)) << name;
    EXPECT_THROW(kernel.forward(x, odd, kPlain, x, four), ShapeError) << name;
    EXPECT_THROW(kernel.forward(x, none, kPlain, x, four), ShapeError) << name;
    EXPECT_THROW(kernel.forward(x, weight, kPlain, narrow, four), ShapeError) << name;
    EXPECT_THROW(kernel.forward(x, weight, kPlain, x, two), ShapeError) << name;
    EXPECT_THROW(kernel.backward({x, weight, kPlain, four}, narrow, x, d_weight), ShapeError) << name;
    EXPECT_THROW(kernel.backward({x, weight, kPlain, four}, x, x, short_d_weight), ShapeError) << name;
  }
}

/// A case of another eps than the reference classes' own has it in its name: "..._eps1e5" for 1e-5.
float eps_of(const std::string& name) {
  const std::size_t begin = name.find("_eps");
  if (begin == std::string::npos) return kPlain.eps;
  std::string number = name.substr(begin + 4, name.find('_', begin + 1) - begin - 4);
  number.insert(number.find('e') + 1, "-");
  return std::stof(number);
}

RmsNormSettings settings_of(const GoldenBlock& block) {
  const std::string reference = block.meta.text("hf");
  bool offset = false;
  for (const char* one_more : {"Gemma3RMSNorm", "Qwen3NextRMSNorm", "Qwen3_5MoeRMSNorm"})
    offset = offset || reference == one_more;
  RmsNormSettings settings = offset ? kGemma : kPlain;
  settings.eps = reference == "Llama4TextL2Norm"
                     ? 1e-5f
                     : static_cast<float>(block.config.number_or("eps", eps_of(block.name)));
  return settings;
}

/// Llama4's norm of q and k and Gemma4's of values have none: ones.
std::vector<float> weight_of(const GoldenBlock& block) {
  if (block.tensors.has("weight.weight")) return block.tensors.floats("weight.weight");
  return std::vector<float>(at(block.shape("input.hidden_states").back()), 1.0f);
}

TEST(RmsNorm, GivesTheGoldenOutputAndGradients) {
  for_each_golden_block("RmsNorm", [](const GoldenBlock& block) {
    for (const auto& [name, kernel] : kRmsNorms) {
      const RmsNormSettings settings = settings_of(block);
      const auto weight = weight_of(block);
      const auto cols = static_cast<Index>(weight.size());
      const auto values = block.tensors.floats("input.hidden_states");
      const auto upstream = block.tensors.floats("upstream_grad.output");
      const ConstMatrixView x(values.data(), static_cast<Index>(values.size()) / cols, cols);
      const ConstMatrixView dy(upstream.data(), x.rows, cols);
      const Forward got = forward(kernel, x, weight, settings);
      const Backward back = backward(kernel, dy, x, weight, got.inv_rms, settings);
      const auto error = [&](std::span<const float> result, const std::string& tensor) {
        return golden_error(result, testing::doubles_in(block.tensors, tensor), kBlockFloor);
      };
      EXPECT_LE(error(got.y.view().flat(), "output"), 1e-5) << block.name << ' ' << name;
      EXPECT_LE(error(back.dx.view().flat(), "grad.input.hidden_states"), 2e-5) << block.name << ' ' << name;
      if (block.tensors.has("weight.weight")) {
        EXPECT_LE(error(back.d_weight, "grad.weight.weight"), 2e-5) << block.name << ' ' << name;
      }
    }
  });
}

}  // namespace
}  // namespace moeloom
