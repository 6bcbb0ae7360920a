#include "kernels/elementwise/layernorm.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/gemm.hpp"
#include "tensor/ordered_sum.hpp"

#include <algorithm>
#include <cmath>

#include "elementwise/row_tasks.hpp"

namespace moeloom {
namespace {

void check(ConstMatrixView x, const LayerNormWeights& weights, ConstRows y, std::span<const float> scales) {
  require(static_cast<Index>(weights.weight.size()) == x.cols &&
              (weights.bias.empty() || static_cast<Index>(weights.bias.size()) == x.cols),
          "a layer norm needs a weight for each column, and a bias for each or none");
  require(y.rows() == x.rows && y.cols() == x.cols, "input and output must have one shape");
  require(static_cast<Index>(scales.size()) == x.rows, "inv_deviation needs one number for each row");
}

float mean_of(const float* x, Index width) {
  return ordered_sum(x, width) / static_cast<float>(width);
}

/// Around the mean, and not the mean square less the squared mean: that would lose digits.
float variance_of(const float* x, Index width, float mean) {
  const float sum = ordered_sum(width, [=](Lanes before, auto at) {
    const Lanes difference = at(x) - mean;
    return multiply_add(difference, difference, before);
  });
  return sum / static_cast<float>(width);
}

template <typename Number>
void scale_row(const float* x, float mean, float inv, const LayerNormWeights& weights, Number* y) {
  const float *weight = weights.weight.data(), *bias = weights.bias.data();
  const Index width = static_cast<Index>(weights.weight.size());
  if (weights.bias.empty()) {
#pragma omp simd
    for (Index j = 0; j < width; ++j) set(y[j], (x[j] - mean) * inv * weight[j]);
    return;
  }
#pragma omp simd
  for (Index j = 0; j < width; ++j) set(y[j], (x[j] - mean) * inv * weight[j] + bias[j]);
}

/// With n = (x - mean) inv and g = weight dy: dx = inv (g - mean(g) - n mean(g n)).
template <bool kBiased>
void row_backward(const float* x, float inv, std::span<const float> weights, const float* dy, float* dx,
                  float* d_weight, float* d_bias) {
  const float* weight = weights.data();
  const Index width = static_cast<Index>(weights.size());
  const float mean = mean_of(x, width);
  const float mean_g = ordered_dot(weight, dy, width) / static_cast<float>(width);
  const float dot = ordered_sum(
      width, [=](Lanes sum, auto at) { return multiply_add(at(weight) * at(dy), at(x) - mean, sum); });
  const float mean_gn = dot * inv / static_cast<float>(width);
#pragma omp simd
  for (Index j = 0; j < width; ++j) {
    const float n = (x[j] - mean) * inv;
    const float grad = dy[j];
    d_weight[j] += grad * n;
    if constexpr (kBiased) d_bias[j] += grad;
    dx[j] = inv * (weight[j] * grad - mean_g - n * mean_gn);
  }
}

void add_row(const float* row, std::span<float> sum) {
  for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += row[j];
}

}  // namespace

void layernorm_forward(ConstMatrixView x, const LayerNormWeights& weights, Rows y,
                       std::span<float> inv_deviation) {
  check(x, weights, y, inv_deviation);
  std::visit(
      [&](auto out) {
        parallel_blocks(x.rows, rows_per_task(x.cols), [&](Index begin, Index end) {
          for (Index i = begin; i < end; ++i) {
            const float mean = mean_of(x.row(i), x.cols);
            const float inv = 1.0f / std::sqrt(variance_of(x.row(i), x.cols, mean) + weights.eps);
            scale_row(x.row(i), mean, inv, weights, out.row(i));
            inv_deviation[at(i)] = inv;
          }
        });
      },
      y);
}

void layernorm_backward(ConstMatrixView x, const LayerNormWeights& weights,
                        std::span<const float> inv_deviation, ConstMatrixView dy, MatrixView dx,
                        const LayerNormGradients& gradients) {
  check(x, weights, dx, inv_deviation);
  require(dy.rows == x.rows && dy.cols == x.cols, "dy and x must have one shape");
  require(gradients.weight.size() == weights.weight.size() && gradients.bias.size() == weights.bias.size(),
          "the gradients need as many numbers as weight and bias");
  const Index chunks = ceil_div(x.rows, kSumChunkRows);
  Matrix d_weight(chunks, x.cols), d_bias(chunks, std::ssize(weights.bias));
  const auto of_row = weights.bias.empty() ? row_backward<false> : row_backward<true>;
  parallel_for(chunks, [&](Index chunk) {
    const Index begin = chunk * kSumChunkRows;
    for (Index i = begin; i < std::min(x.rows, begin + kSumChunkRows); ++i)
      of_row(x.row(i), inv_deviation[at(i)], weights.weight, dy.row(i), dx.row(i), d_weight.row(chunk),
             d_bias.row(chunk));
  });
  for (Index chunk = 0; chunk < chunks; ++chunk) {
    add_row(d_weight.row(chunk), gradients.weight);
    add_row(d_bias.row(chunk), gradients.bias);
  }
}

}  // namespace moeloom
