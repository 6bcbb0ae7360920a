#include "kernels/elementwise/sigmoid_gate.hpp"

#include "kernels/elementwise/vector_math.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include "elementwise/row_tasks.hpp"

namespace moeloom {
namespace {

void check(ConstMatrixView x, ConstMatrixView gate, ConstRows y) {
  require(gate.rows == x.rows && gate.cols == x.cols && y.rows() == x.rows && y.cols() == x.cols,
          "a gate must have the shape of what it multiplies");
}

template <typename Number>
void gate_row(const float* x, const float* gate, Index width, Number* y) {
#pragma omp simd
  for (Index j = 0; j < width; ++j) set(y[j], x[j] * vector_math::sigmoid(gate[j]).value);
}

void gate_row_backward(const float* dy, const float* x, const float* gate, Index width, float* dx,
                       float* d_gate) {
#pragma omp simd
  for (Index j = 0; j < width; ++j) {
    const vector_math::Sigmoid sigmoid = vector_math::sigmoid(gate[j]);
    const float d_scaled = dy[j] * sigmoid.value;
    d_gate[j] = d_scaled * x[j] * sigmoid.complement;
    dx[j] = d_scaled;
  }
}

}  // namespace

void sigmoid_gate_forward(ConstMatrixView x, ConstMatrixView gate, Rows y) {
  check(x, gate, y);
  std::visit(
      [&](auto out) {
        parallel_blocks(x.rows, rows_per_task(x.cols), [&](Index begin, Index end) {
          for (Index i = begin; i < end; ++i) gate_row(x.row(i), gate.row(i), x.cols, out.row(i));
        });
      },
      y);
}

void sigmoid_gate_backward(ConstMatrixView dy, ConstMatrixView x, ConstMatrixView gate, MatrixView dx,
                           MatrixView d_gate) {
  check(x, gate, dy);
  check(x, d_gate, dx);
  parallel_blocks(x.rows, rows_per_task(x.cols), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      gate_row_backward(dy.row(i), x.row(i), gate.row(i), x.cols, dx.row(i), d_gate.row(i));
  });
}

}  // namespace moeloom
