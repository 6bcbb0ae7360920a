#include "kernels/elementwise/soft_cap.hpp"

#include "kernels/elementwise/vector_math.hpp"
#include "moeloom/base/parallel.hpp"

#include <cmath>

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 16;

}  // namespace

void soft_cap(float cap, float* x, Index n) {
#pragma omp simd
  for (Index j = 0; j < n; ++j) x[j] = cap * vector_math::tanh(x[j] / cap);
}

void soft_cap(float cap, double* x, Index n) {
  const auto wide = static_cast<double>(cap);
  for (Index j = 0; j < n; ++j) x[j] = wide * std::tanh(x[j] / wide);
}

void soft_cap_backward(float cap, const float* capped, float* d, Index n) {
#pragma omp simd
  for (Index j = 0; j < n; ++j) {
    const float share = capped[j] / cap;
    d[j] *= (1.0f - share) * (1.0f + share);
  }
}

void soft_cap(float cap, MatrixView x) {
  parallel_blocks(x.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) soft_cap(cap, x.row(t), x.cols);
  });
}

void soft_cap_backward(float cap, ConstMatrixView capped, MatrixView d) {
  parallel_blocks(d.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) soft_cap_backward(cap, capped.row(t), d.row(t), d.cols);
  });
}

}  // namespace moeloom
