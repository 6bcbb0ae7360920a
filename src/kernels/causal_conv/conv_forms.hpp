// What goes into a causal convolution and comes out of it, by form: read() gives the inputs of a row, write()
// turns sums into a row of y, slope() turns sums into the gradient by them, and write_gradient() takes that
// by the inputs.
#pragma once

#include "kernels/elementwise/vector_math.hpp"
#include "moeloom/base/stretch.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <algorithm>

namespace moeloom::causal_conv {

/// Part of the channels.
using Channels = Stretch;

struct Plain {
  ConstMatrixView x, dy;
  MatrixView y;  // or dx

  void read(Index t, Channels c, float* to) const { std::copy_n(x.row(t) + c.begin, c.size(), to); }
  void write(Index t, Channels c, const float* sum) const { std::copy_n(sum, c.size(), y.row(t) + c.begin); }
  void slope(Index t, Channels c, bool, float* sum) const { std::copy_n(dy.row(t) + c.begin, c.size(), sum); }
  void write_gradient(Index t, Channels c, const float* d) const { write(t, c, d); }
};

struct Silu : Plain {
  void write(Index t, Channels c, const float* sum) const {
    float* to = y.row(t) + c.begin;
#pragma omp simd
    for (Index i = 0; i < c.size(); ++i) to[i] = vector_math::silu(sum[i]);
  }
  void slope(Index t, Channels c, bool, float* sum) const {
    const float* from = dy.row(t) + c.begin;
#pragma omp simd
    for (Index i = 0; i < c.size(); ++i) sum[i] = from[i] * vector_math::silu_slope(sum[i]).slope;
  }
};

/// y = C * conv(B * X).
struct Gated {
  ConstMatrixView projected, dy;
  MatrixView y;  // or d_projected
  Index channels;

  template <typename T>
  auto* part(BasicView<T> m, Index t, Index number, Channels c) const {
    return m.row(t) + number * channels + c.begin;
  }
  void read(Index t, Channels c, float* to) const {
    const float *b = part(projected, t, 0, c), *x = part(projected, t, 2, c);
    for (Index i = 0; i < c.size(); ++i) to[i] = b[i] * x[i];
  }
  void write(Index t, Channels c, const float* sum) const {
    const float* gate = part(projected, t, 1, c);
    float* to = y.row(t) + c.begin;
    for (Index i = 0; i < c.size(); ++i) to[i] = gate[i] * sum[i];
  }
  void slope(Index t, Channels c, bool in_piece, float* sum) const {
    const float *gate = part(projected, t, 1, c), *from = dy.row(t) + c.begin;
    float* d_gate = part(y, t, 1, c);
    for (Index i = 0; i < c.size(); ++i) {
      if (in_piece) d_gate[i] = from[i] * sum[i];
      sum[i] = from[i] * gate[i];
    }
  }
  void write_gradient(Index t, Channels c, const float* d) const {
    const float *b = part(projected, t, 0, c), *x = part(projected, t, 2, c);
    float *d_b = part(y, t, 0, c), *d_x = part(y, t, 2, c);
    for (Index i = 0; i < c.size(); ++i) {
      d_b[i] = d[i] * x[i];
      d_x[i] = d[i] * b[i];
    }
  }
};

}  // namespace moeloom::causal_conv
