#include "kernels/delta_gates.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/gemm.hpp"
#include "tensor/rounded_math.hpp"

#include <cmath>

namespace moeloom {
namespace {

float sigmoid(float x) {
  return 1.0f / (1.0f + std::exp(-x));
}
/// log(1 + e^x), exact to rounding at both ends.
float softplus(float x) {
  return std::max(x, 0.0f) + log1p_of(std::exp(-std::fabs(x)));
}

void check(const DeltaGates& gates, std::initializer_list<ConstMatrixView> matrices) {
  const auto heads = static_cast<Index>(gates.a_log.size());
  require(gates.dt_bias.size() == gates.a_log.size(), "delta gates: a_log and dt_bias need one size");
  for (const ConstMatrixView m : matrices)
    require(m.rows == matrices.begin()->rows && m.cols == heads, "delta gates: all must be [T, heads]");
}

/// Gradients of one token by its projections, and what a_log and dt_bias get of it, heads apart, in `sums`.
void token_backward(const DeltaGates& gates, const float* b, const float* a, const float* d_beta,
                    const float* d_log_decay, float* d_b, float* d_a, float* sums) {
  const std::size_t heads = gates.a_log.size();
  for (std::size_t h = 0; h < heads; ++h) {
    const float beta = sigmoid(b[h]), x = a[h] + gates.dt_bias[h];
    const float by_softplus = -std::exp(gates.a_log[h]) * d_log_decay[h];
    d_b[h] = d_beta[h] * beta * (1.0f - beta);
    d_a[h] = by_softplus * sigmoid(x);
    sums[h] += by_softplus * softplus(x);
    sums[heads + h] += d_a[h];
  }
}

}  // namespace

void delta_gates_forward(const DeltaGates& gates, ConstMatrixView b, ConstMatrixView a, MatrixView beta,
                         MatrixView log_decay) {
  check(gates, {b, a, beta, log_decay});
  parallel_blocks(b.rows, kSumChunkRows, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t)
      for (Index h = 0; h < b.cols; ++h) {
        beta(t, h) = sigmoid(b(t, h));
        log_decay(t, h) = -std::exp(gates.a_log[at(h)]) * softplus(a(t, h) + gates.dt_bias[at(h)]);
      }
  });
}

void delta_gates_backward(const DeltaGates& gates, ConstMatrixView b, ConstMatrixView a,
                          ConstMatrixView d_beta, ConstMatrixView d_log_decay,
                          const DeltaGateGradients& gradients) {
  check(gates, {b, a, d_beta, d_log_decay, gradients.b, gradients.a});
  require(gradients.a_log.size() == gates.a_log.size() && gradients.dt_bias.size() == gates.a_log.size(),
          "delta gates: gradients of a_log and dt_bias need a number for each head");
  const Index heads = b.cols;
  Matrix sums(ceil_div(b.rows, kSumChunkRows), 2 * heads);
  parallel_blocks(b.rows, kSumChunkRows, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t)
      token_backward(gates, b.row(t), a.row(t), d_beta.row(t), d_log_decay.row(t), gradients.b.row(t),
                     gradients.a.row(t), sums.row(begin / kSumChunkRows));
  });
  for (Index chunk = 0; chunk < sums.rows(); ++chunk)
    for (Index h = 0; h < heads; ++h) {
      gradients.a_log[at(h)] += sums.row(chunk)[h];
      gradients.dt_bias[at(h)] += sums.row(chunk)[heads + h];
    }
}

}  // namespace moeloom
