#include "kernels/elementwise/output_gate.hpp"

#include "kernels/elementwise/vector_math.hpp"
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/ordered_sum.hpp"

#include "elementwise/row_tasks.hpp"

namespace moeloom {
namespace {

struct OfSigmoid {
  static float value(float gate) { return vector_math::sigmoid(gate).value; }
  static void backward(float dy, float x, float gate, float& dx, float& d_gate) {
    const vector_math::Sigmoid sigmoid = vector_math::sigmoid(gate);
    const float d_scaled = dy * sigmoid.value;
    d_gate = d_scaled * x * sigmoid.complement;
    dx = d_scaled;
  }
  static float slope(float gate) {
    const vector_math::Sigmoid sigmoid = vector_math::sigmoid(gate);
    return sigmoid.value * sigmoid.complement;
  }
};

struct OfSoftplus {
  static float value(float gate) { return vector_math::softplus(gate); }
  static void backward(float dy, float x, float gate, float& dx, float& d_gate) {
    d_gate = dy * x * slope(gate);
    dx = dy * value(gate);
  }
  static float slope(float gate) { return vector_math::sigmoid(gate).value; }
};

/// do_it(one of both).
template <typename DoIt>
void with(GateFunction function, const DoIt& do_it) {
  if (function == GateFunction::kSigmoid) return do_it(OfSigmoid());
  do_it(OfSoftplus());
}

void check(ConstMatrixView x, ConstMatrixView gate, ConstRows y) {
  require(gate.rows == x.rows && (x.cols == 0 || (gate.cols > 0 && x.cols % gate.cols == 0)),
          "a gate must have the rows of what it multiplies, and a number for each so many columns");
  require(y.rows() == x.rows && y.cols() == x.cols, "what a gate gives has the shape of what it multiplies");
}

// One number an element.

template <class Function, typename Number>
void gate_row(const float* x, const float* gate, Index width, Number* y) {
#pragma omp simd
  for (Index j = 0; j < width; ++j) set(y[j], x[j] * Function::value(gate[j]));
}

template <class Function>
void gate_row_backward(const float* dy, const float* x, const float* gate, Index width, float* dx,
                       float* d_gate) {
#pragma omp simd
  for (Index j = 0; j < width; ++j) Function::backward(dy[j], x[j], gate[j], dx[j], d_gate[j]);
}

// One number a head of `size` columns.

template <typename Number>
void scale(const float* x, float factor, Index size, Number* y) {
#pragma omp simd
  for (Index j = 0; j < size; ++j) set(y[j], x[j] * factor);
}

template <class Function, typename Number>
void gate_heads(const float* x, const float* gate, Index heads, Index size, Number* y) {
  for (Index head = 0; head < heads; ++head)
    scale(x + head * size, Function::value(gate[head]), size, y + head * size);
}

template <class Function>
void gate_heads_backward(const float* dy, const float* x, const float* gate, Index heads, Index size,
                         float* dx, float* d_gate) {
  for (Index head = 0; head < heads; ++head) {
    const Index first = head * size;
    d_gate[head] = ordered_dot(dy + first, x + first, size) * Function::slope(gate[head]);
    scale(dy + first, Function::value(gate[head]), size, dx + first);
  }
}

}  // namespace

void output_gate_forward(GateFunction function, ConstMatrixView x, ConstMatrixView gate, Rows y) {
  check(x, gate, y);
  const Index heads = gate.cols;
  const auto write = [&]<class Function>(Function, auto out) {
    parallel_blocks(x.rows, rows_per_task(x.cols), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        if (heads == x.cols)
          gate_row<Function>(x.row(i), gate.row(i), x.cols, out.row(i));
        else
          gate_heads<Function>(x.row(i), gate.row(i), heads, x.cols / heads, out.row(i));
      }
    });
  };
  with(function, [&](auto of) { std::visit([&](auto out) { write(of, out); }, y); });
}

void output_gate_backward(GateFunction function, ConstMatrixView dy, ConstMatrixView x, ConstMatrixView gate,
                          MatrixView dx, MatrixView d_gate) {
  check(x, gate, dy);
  check(x, d_gate, dx);
  require(d_gate.cols == gate.cols, "a gate and its gradient must have one shape");
  const Index heads = gate.cols;
  with(function, [&]<class Function>(Function) {
    parallel_blocks(x.rows, rows_per_task(x.cols), [&](Index begin, Index end) {
      for (Index i = begin; i < end; ++i) {
        if (heads == x.cols)
          gate_row_backward<Function>(dy.row(i), x.row(i), gate.row(i), x.cols, dx.row(i), d_gate.row(i));
        else
          gate_heads_backward<Function>(dy.row(i), x.row(i), gate.row(i), heads, x.cols / heads, dx.row(i),
                                        d_gate.row(i));
      }
    });
  });
}

}  // namespace moeloom
