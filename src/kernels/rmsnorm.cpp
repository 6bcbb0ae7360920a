#include "moeloom/kernels/rmsnorm.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "row_tasks.hpp"

namespace moeloom {
namespace {

/// Checks the shapes and returns the groups of a row.
Index groups_of(ConstMatrixView x, std::span<const float> weight, ConstMatrixView y,
                std::span<const float> inv_rms) {
  const Index width = static_cast<Index>(weight.size());
  require(width > 0 && x.cols % width == 0, "the weight's size must divide the columns");
  require(x.rows == y.rows && x.cols == y.cols, "input and output must have one shape");
  require(static_cast<Index>(inv_rms.size()) == x.rows * (x.cols / width),
          "inv_rms needs one number for each group of each row");
  return x.cols / width;
}

Index check_backward(ConstMatrixView dy, ConstMatrixView x, std::span<const float> weight,
                     std::span<const float> inv_rms, ConstMatrixView dx, std::span<const float> d_weight) {
  require(dy.rows == x.rows && dy.cols == x.cols, "dy and x must have one shape");
  require(d_weight.size() == weight.size(), "d_weight needs as many numbers as weight");
  return groups_of(x, weight, dx, inv_rms);
}

/// Chunk sums of d_weight [chunks, D] and then their sum onto d_weight, in order. add_chunk(begin, end, sum)
/// adds rows [begin, end) to a chunk's sum.
template <typename Run, typename AddChunk>
void add_in_chunks(Index rows, std::span<float> d_weight, Run&& run, AddChunk&& add_chunk) {
  const Index width = static_cast<Index>(d_weight.size());
  Matrix sums(ceil_div(rows, kSumChunkRows), width);
  run(sums.rows(), [&](Index chunk) {
    const Index begin = chunk * kSumChunkRows;
    add_chunk(begin, std::min(rows, begin + kSumChunkRows), sums.row(chunk));
  });
  for (Index chunk = 0; chunk < sums.rows(); ++chunk) {
    for (Index j = 0; j < width; ++j) d_weight[static_cast<std::size_t>(j)] += sums.row(chunk)[j];
  }
}

void reference_forward(ConstMatrixView x, std::span<const float> weight, float eps, MatrixView y,
                       std::span<float> inv_rms) {
  const Index groups = groups_of(x, weight, y, inv_rms);
  const Index width = static_cast<Index>(weight.size());
  for (Index i = 0; i < x.rows * groups; ++i) {
    const float* in = x.row(i / groups) + i % groups * width;
    float* out = y.row(i / groups) + i % groups * width;
    double squares = 0;
    for (Index j = 0; j < width; ++j) squares += static_cast<double>(in[j]) * in[j];
    const float inv = static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(width) + eps));
    for (Index j = 0; j < width; ++j) out[j] = in[j] * inv * weight[static_cast<std::size_t>(j)];
    inv_rms[static_cast<std::size_t>(i)] = inv;
  }
}

/// With n = x inv_rms: dx = inv_rms (w dy - n mean(w dy n)), dw = dy n.
void reference_group_backward(const float* dy, const float* x, const float* weight, Index width, float inv,
                              float* dx, float* dw) {
  double dot = 0;
  for (Index j = 0; j < width; ++j) dot += static_cast<double>(weight[j]) * dy[j] * x[j] * inv;
  const double mean = dot / static_cast<double>(width);
  for (Index j = 0; j < width; ++j) {
    const float normed = x[j] * inv;
    dw[j] += dy[j] * normed;
    dx[j] = static_cast<float>(inv * (static_cast<double>(weight[j]) * dy[j] - normed * mean));
  }
}

void reference_backward(ConstMatrixView dy, ConstMatrixView x, std::span<const float> weight,
                        std::span<const float> inv_rms, MatrixView dx, std::span<float> d_weight) {
  const Index groups = check_backward(dy, x, weight, inv_rms, dx, d_weight);
  const Index width = static_cast<Index>(weight.size());
  const auto serially = [](Index count, auto&& body) {
    for (Index i = 0; i < count; ++i) body(i);
  };
  add_in_chunks(x.rows, d_weight, serially, [&](Index begin, Index end, float* sum) {
    for (Index i = begin * groups; i < end * groups; ++i) {
      const Index column = i % groups * width;
      reference_group_backward(dy.row(i / groups) + column, x.row(i / groups) + column, weight.data(), width,
                               inv_rms[static_cast<std::size_t>(i)], dx.row(i / groups) + column, sum);
    }
  });
}

// One vector accumulator waits for its own last addition; four that do not wait for each other run at the
// speed of the loads. Quarters of the row keep each of them contiguous.
float sum_of_squares(const float* x, Index width) {
  const Index quarter = width / 64 * 16;
  const float *x1 = x + quarter, *x2 = x1 + quarter, *x3 = x2 + quarter;
  float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
  for (Index j = 0; j < quarter; ++j) {
    s0 += x[j] * x[j];
    s1 += x1[j] * x1[j];
    s2 += x2[j] * x2[j];
    s3 += x3[j] * x3[j];
  }
  float rest = 0;
#pragma omp simd reduction(+ : rest)
  for (Index j = 4 * quarter; j < width; ++j) rest += x[j] * x[j];
  return ((s0 + s1) + (s2 + s3)) + rest;
}

void scale_group(const float* x, const float* weight, float inv, Index width, float* y) {
#pragma omp simd
  for (Index j = 0; j < width; ++j) y[j] = x[j] * inv * weight[j];
}

void fused_forward(ConstMatrixView x, std::span<const float> weight, float eps, MatrixView y,
                   std::span<float> inv_rms) {
  const Index groups = groups_of(x, weight, y, inv_rms);
  const Index width = static_cast<Index>(weight.size());
  parallel_blocks(x.rows, rows_per_task(x.cols), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      for (Index g = 0; g < groups; ++g) {
        const float* in = x.row(i) + g * width;
        const float inv = 1.0f / std::sqrt(sum_of_squares(in, width) / static_cast<float>(width) + eps);
        scale_group(in, weight.data(), inv, width, y.row(i) + g * width);
        inv_rms[static_cast<std::size_t>(i * groups + g)] = inv;
      }
    }
  });
}

float weighted_dot(const float* weight, const float* dy, const float* x, Index width) {
  const Index half = width / 32 * 16;
  const float *w1 = weight + half, *dy1 = dy + half, *x1 = x + half;
  float s0 = 0, s1 = 0;
#pragma omp simd reduction(+ : s0, s1)
  for (Index j = 0; j < half; ++j) {
    s0 += weight[j] * dy[j] * x[j];
    s1 += w1[j] * dy1[j] * x1[j];
  }
  float rest = 0;
#pragma omp simd reduction(+ : rest)
  for (Index j = 2 * half; j < width; ++j) rest += weight[j] * dy[j] * x[j];
  return (s0 + s1) + rest;
}

void fused_group_backward(const float* dy, const float* x, const float* weight, Index width, float inv,
                          float* dx, float* dw) {
  const float mean = weighted_dot(weight, dy, x, width) * inv / static_cast<float>(width);
#pragma omp simd
  for (Index j = 0; j < width; ++j) {
    const float normed = x[j] * inv;
    const float grad = dy[j];
    dw[j] += grad * normed;
    dx[j] = inv * (weight[j] * grad - normed * mean);
  }
}

void fused_backward(ConstMatrixView dy, ConstMatrixView x, std::span<const float> weight,
                    std::span<const float> inv_rms, MatrixView dx, std::span<float> d_weight) {
  const Index groups = check_backward(dy, x, weight, inv_rms, dx, d_weight);
  const Index width = static_cast<Index>(weight.size());
  const auto on_threads = [](Index count, auto&& body) { parallel_for(count, body); };
  add_in_chunks(x.rows, d_weight, on_threads, [&](Index begin, Index end, float* sum) {
    for (Index i = begin; i < end; ++i) {
      for (Index g = 0; g < groups; ++g) {
        const Index column = g * width;
        fused_group_backward(dy.row(i) + column, x.row(i) + column, weight.data(), width,
                             inv_rms[static_cast<std::size_t>(i * groups + g)], dx.row(i) + column, sum);
      }
    }
  });
}

}  // namespace

RmsNormKernel reference_rmsnorm() {
  return {reference_forward, reference_backward};
}
RmsNormKernel fused_rmsnorm() {
  return {fused_forward, fused_backward};
}

}  // namespace moeloom
