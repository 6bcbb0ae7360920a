#include "moeloom/kernels/swiglu.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/vector_math.hpp"

#include <cmath>

#include "row_tasks.hpp"

namespace moeloom {
namespace {

void check(ConstMatrixView gate_up, std::span<const float> row_scale, ConstMatrixView activated) {
  require(activated.rows == gate_up.rows, "activated needs one row for each row of gate_up");
  require(gate_up.cols == 2 * activated.cols, "gate_up needs twice the columns of activated");
  require(row_scale.empty() || static_cast<Index>(row_scale.size()) == gate_up.rows,
          "row_scale needs one number for each row of gate_up, or none");
}

void check(ConstMatrixView gate_up, std::span<const float> row_scale, ConstMatrixView d_activated,
           ConstMatrixView d_gate_up, std::span<const float> d_row_scale, ConstMatrixView activated) {
  check(gate_up, row_scale, activated);
  check(d_gate_up, row_scale, activated);
  check(gate_up, row_scale, d_activated);
  require(d_row_scale.size() == row_scale.size(), "d_row_scale needs as many numbers as row_scale");
}

float scale_of(std::span<const float> row_scale, Index row) {
  return row_scale.empty() ? 1.0f : row_scale[static_cast<std::size_t>(row)];
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

void reference_forward(ConstMatrixView gate_up, std::span<const float> row_scale, MatrixView activated) {
  check(gate_up, row_scale, activated);
  const Index width = activated.cols;
  for (Index i = 0; i < activated.rows; ++i) {
    for (Index j = 0; j < width; ++j) {
      const double gate = gate_up(i, j);
      const double up = gate_up(i, width + j);
      activated(i, j) = static_cast<float>(scale_of(row_scale, i) * gate * sigmoid(gate) * up);
    }
  }
}

void reference_backward(ConstMatrixView gate_up, std::span<const float> row_scale,
                        ConstMatrixView d_activated, MatrixView d_gate_up, std::span<float> d_row_scale,
                        MatrixView activated) {
  check(gate_up, row_scale, d_activated, d_gate_up, d_row_scale, activated);
  const Index width = activated.cols;
  for (Index i = 0; i < activated.rows; ++i) {
    const double scale = scale_of(row_scale, i);
    double d_scale = 0;
    for (Index j = 0; j < width; ++j) {
      const double gate = gate_up(i, j);
      const double up = gate_up(i, width + j);
      const double grad = d_activated(i, j);
      const double silu = gate * sigmoid(gate);
      const double slope = sigmoid(gate) * (1 + gate * sigmoid(-gate));
      d_gate_up(i, j) = static_cast<float>(scale * grad * up * slope);
      d_gate_up(i, width + j) = static_cast<float>(scale * grad * silu);
      activated(i, j) = static_cast<float>(scale * silu * up);
      d_scale += grad * silu * up;
    }
    if (!d_row_scale.empty()) d_row_scale[static_cast<std::size_t>(i)] = static_cast<float>(d_scale);
  }
}

void forward_row(const float* gate, const float* up, float scale, Index width, float* activated) {
#pragma omp simd
  for (Index j = 0; j < width; ++j) activated[j] = scale * vector_math::silu(gate[j]) * up[j];
}

void fused_forward(ConstMatrixView gate_up, std::span<const float> row_scale, MatrixView activated) {
  check(gate_up, row_scale, activated);
  const Index width = activated.cols;
  parallel_blocks(activated.rows, rows_per_task(2 * width), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      forward_row(gate_up.row(i), gate_up.row(i) + width, scale_of(row_scale, i), width, activated.row(i));
    }
  });
}

/// Returns <grad, silu(gate) * up>. Column j is read before it is written, so d_gate may be gate, d_up may be
/// up and activated may be grad.
float backward_row(const float* gate, const float* up, const float* grad, float scale, Index width,
                   float* d_gate, float* d_up, float* activated) {
  float d_scale = 0;
#pragma omp simd reduction(+ : d_scale)
  for (Index j = 0; j < width; ++j) {
    const vector_math::ValueSlope silu = vector_math::silu_slope(gate[j]);
    const float scaled_grad = scale * grad[j];
    const float product = silu.value * up[j];
    d_scale += grad[j] * product;
    const float d_gate_j = scaled_grad * up[j] * silu.slope;
    const float d_up_j = scaled_grad * silu.value;
    d_gate[j] = d_gate_j;
    d_up[j] = d_up_j;
    activated[j] = scale * product;
  }
  return d_scale;
}

void fused_backward(ConstMatrixView gate_up, std::span<const float> row_scale, ConstMatrixView d_activated,
                    MatrixView d_gate_up, std::span<float> d_row_scale, MatrixView activated) {
  check(gate_up, row_scale, d_activated, d_gate_up, d_row_scale, activated);
  const Index width = activated.cols;
  parallel_blocks(activated.rows, rows_per_task(2 * width), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const float d_scale =
          backward_row(gate_up.row(i), gate_up.row(i) + width, d_activated.row(i), scale_of(row_scale, i),
                       width, d_gate_up.row(i), d_gate_up.row(i) + width, activated.row(i));
      if (!d_row_scale.empty()) d_row_scale[static_cast<std::size_t>(i)] = d_scale;
    }
  });
}

}  // namespace

SwigluKernel reference_swiglu() {
  return {reference_forward, reference_backward};
}
SwigluKernel fused_swiglu() {
  return {fused_forward, fused_backward};
}

}  // namespace moeloom
