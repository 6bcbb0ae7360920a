#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/vector_math.hpp"

#include <cmath>
#include <vector>

#include "row_tasks.hpp"
#include "swiglu_rows.hpp"

namespace moeloom {
namespace {

template <Activation kAct>
float value(float x) {
  if constexpr (kAct == Activation::kSilu) return vector_math::silu(x);
  if constexpr (kAct == Activation::kGeluTanh) return vector_math::gelu_tanh(x);
  if constexpr (kAct == Activation::kGelu) return vector_math::gelu(x);
}

template <Activation kAct>
vector_math::ValueSlope value_slope(float x) {
  if constexpr (kAct == Activation::kSilu) return vector_math::silu_slope(x);
  if constexpr (kAct == Activation::kGeluTanh) return vector_math::gelu_tanh_slope(x);
  if constexpr (kAct == Activation::kGelu) return vector_math::gelu_slope(x);
}

template <Activation kAct>
void forward_row(const float* gate, const float* up, float scale, Index width, float* activated) {
#pragma omp simd
  for (Index j = 0; j < width; ++j) activated[j] = scale * value<kAct>(gate[j]) * up[j];
}

/// Returns <grad, act(gate) * up>. Column j is read before it is written, so d_gate may be gate, d_up may be
/// up and activated may be grad.
template <Activation kAct>
float backward_row(const float* gate, const float* up, const float* grad, float scale, Index width,
                   float* d_gate, float* d_up, float* activated) {
  float d_scale = 0;
#pragma omp simd reduction(+ : d_scale)
  for (Index j = 0; j < width; ++j) {
    const vector_math::ValueSlope act = value_slope<kAct>(gate[j]);
    const float scaled_grad = scale * grad[j];
    const float product = act.value * up[j];
    d_scale += grad[j] * product;
    const float d_gate_j = scaled_grad * up[j] * act.slope;
    const float d_up_j = scaled_grad * act.value;
    d_gate[j] = d_gate_j;
    d_up[j] = d_up_j;
    activated[j] = scale * product;
  }
  return d_scale;
}

using ForwardRow = decltype(&forward_row<Activation::kSilu>);
ForwardRow forward_row_of(Activation act) {
  if (act == Activation::kGeluTanh) return forward_row<Activation::kGeluTanh>;
  return act == Activation::kGelu ? forward_row<Activation::kGelu> : forward_row<Activation::kSilu>;
}

using BackwardRow = decltype(&backward_row<Activation::kSilu>);
BackwardRow backward_row_of(Activation act) {
  if (act == Activation::kGeluTanh) return backward_row<Activation::kGeluTanh>;
  return act == Activation::kGelu ? backward_row<Activation::kGelu> : backward_row<Activation::kSilu>;
}

/// Of a row of the gate; slope is z over the deviation, 0 where the deviation is.
struct Cut {
  float mean;
  float cutoff;
  float slope;
};

Cut cut_of(const float* gate, Index width, float z) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index j = 0; j < width; ++j) sum += gate[j];
  const float mean = sum / static_cast<float>(width);
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (Index j = 0; j < width; ++j) squares += (gate[j] - mean) * (gate[j] - mean);
  const float deviation = std::sqrt(squares / static_cast<float>(width));
  return {mean, mean + z * deviation, deviation > 0 ? z / deviation : 0.0f};
}

void cut_row(const float* gate, float cutoff, Index width, float* cut) {
#pragma omp simd
  for (Index j = 0; j < width; ++j) cut[j] = gate[j] < cutoff ? 0.0f : gate[j] - cutoff;
}

/// The gate's gradient from that of the cut gate, which is 0 where the cut gate is: every element also moves
/// mean and deviation. d_gate may be gate.
void uncut_gradient(const float* gate, const float* cut, const float* d_cut, const Cut& row, Index width,
                    float* d_gate) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index j = 0; j < width; ++j) sum += cut[j] <= 0 ? 0.0f : d_cut[j];
  const float share = sum / static_cast<float>(width);
#pragma omp simd
  for (Index j = 0; j < width; ++j) {
    const float direct = cut[j] <= 0 ? 0.0f : d_cut[j];
    d_gate[j] = direct - share * (1.0f + row.slope * (gate[j] - row.mean));
  }
}

/// body(row, scratch [2, width]) for each row by all threads.
template <typename Body>
void for_each_row(Index rows, Index width, Body&& body) {
  parallel_blocks(rows, rows_per_task(2 * width), [&](Index begin, Index end) {
    Matrix scratch(2, width);
    for (Index i = begin; i < end; ++i) body(i, scratch);
  });
}

void dense_forward(ForwardRow row, ConstMatrixView gate_up, std::span<const float> row_scale,
                   MatrixView activated) {
  const Index width = activated.cols;
  parallel_blocks(activated.rows, rows_per_task(2 * width), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      row(gate_up.row(i), gate_up.row(i) + width, swiglu::scale_of(row_scale, i), width, activated.row(i));
  });
}

void sparse_forward(ForwardRow row, float z, ConstMatrixView gate_up, std::span<const float> row_scale,
                    MatrixView activated) {
  const Index width = activated.cols;
  for_each_row(activated.rows, width, [&](Index i, Matrix& scratch) {
    const float* gate = gate_up.row(i);
    cut_row(gate, cut_of(gate, width, z).cutoff, width, scratch.row(0));
    row(scratch.row(0), gate + width, swiglu::scale_of(row_scale, i), width, activated.row(i));
  });
}

void forward(const GatedActivation& activation, ConstMatrixView gate_up, std::span<const float> row_scale,
             MatrixView activated) {
  swiglu::check_forward(activation, gate_up, row_scale, activated);
  const ForwardRow row = forward_row_of(activation.act);
  if (activation.sparsity == 0) return dense_forward(row, gate_up, row_scale, activated);
  const auto z = static_cast<float>(swiglu::normal_quantile(activation.sparsity));
  sparse_forward(row, z, gate_up, row_scale, activated);
}

/// What backward is given, apart from the activation.
struct BackwardRows {
  ConstMatrixView gate_up;
  std::span<const float> row_scale;
  ConstMatrixView d_activated;
  MatrixView d_gate_up;
  std::span<float> d_row_scale;
  MatrixView activated;

  void set_d_scale(Index i, float d_scale) const {
    if (!d_row_scale.empty()) d_row_scale[static_cast<std::size_t>(i)] = d_scale;
  }
};

void dense_backward(BackwardRow row, const BackwardRows& rows) {
  const Index width = rows.activated.cols;
  parallel_blocks(rows.activated.rows, rows_per_task(2 * width), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const float *gate = rows.gate_up.row(i), *grad = rows.d_activated.row(i);
      float* d_gate = rows.d_gate_up.row(i);
      rows.set_d_scale(i, row(gate, gate + width, grad, swiglu::scale_of(rows.row_scale, i), width, d_gate,
                              d_gate + width, rows.activated.row(i)));
    }
  });
}

void sparse_backward(BackwardRow row, float z, const BackwardRows& rows) {
  const Index width = rows.activated.cols;
  for_each_row(rows.activated.rows, width, [&](Index i, Matrix& scratch) {
    const float *gate = rows.gate_up.row(i), *grad = rows.d_activated.row(i);
    float *d_gate = rows.d_gate_up.row(i), *cut = scratch.row(0), *d_cut = scratch.row(1);
    const Cut of_row = cut_of(gate, width, z);
    cut_row(gate, of_row.cutoff, width, cut);
    rows.set_d_scale(i, row(cut, gate + width, grad, swiglu::scale_of(rows.row_scale, i), width, d_cut,
                            d_gate + width, rows.activated.row(i)));
    uncut_gradient(gate, cut, d_cut, of_row, width, d_gate);
  });
}

void backward(const GatedActivation& activation, ConstMatrixView gate_up, std::span<const float> row_scale,
              ConstMatrixView d_activated, MatrixView d_gate_up, std::span<float> d_row_scale,
              MatrixView activated) {
  swiglu::check_backward(activation, gate_up, row_scale, d_activated, d_gate_up, d_row_scale, activated);
  const BackwardRow row = backward_row_of(activation.act);
  const BackwardRows rows{gate_up, row_scale, d_activated, d_gate_up, d_row_scale, activated};
  if (activation.sparsity == 0) return dense_backward(row, rows);
  sparse_backward(row, static_cast<float>(swiglu::normal_quantile(activation.sparsity)), rows);
}

}  // namespace

SwigluKernel fused_swiglu() {
  return {forward, backward};
}

}  // namespace moeloom
