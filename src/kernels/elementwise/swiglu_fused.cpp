#include "kernels/elementwise/vector_math.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/ordered_sum.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "elementwise/row_tasks.hpp"
#include "elementwise/swiglu_rows.hpp"

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

template <Activation kAct, typename Number>
void forward_row(const float* gate, const float* up, float scale, Index width, Number* activated) {
#pragma omp simd
  for (Index j = 0; j < width; ++j) set(activated[j], scale * value<kAct>(gate[j]) * up[j]);
}

void ask_for(const float* values, Index count) {
  constexpr Index kLine = 16;
  for (Index j = 0; j < count; j += kLine) __builtin_prefetch(values + j);
}

/// The same, while the two stretches of the next row are on their way: the hardware's own streams begin anew
/// with every row, and rows of an expert are short.
template <Activation kAct, typename Number>
void forward_row_before(const float* next, const float* gate, const float* up, float scale, Index width,
                        Number* activated) {
  constexpr Index kStretch = 128;
  for (Index begin = 0; begin < width; begin += kStretch) {
    const Index count = std::min(kStretch, width - begin);
    ask_for(next + begin, count);
    ask_for(next + width + begin, count);
    forward_row<kAct>(gate + begin, up + begin, scale, count, activated + begin);
  }
}

/// The sum of what fill(begin, count, terms) writes for a row's columns [begin, begin + count), piece by
/// piece: a loop over columns then has no sum in it, whose order the compiler would choose.
template <typename Fill>
float sum_of_pieces(Index width, Fill&& fill) {
  OrderedSum sum;
  std::array<float, 8 * kPartialSums> terms;
  for (Index begin = 0; begin < width; begin += std::ssize(terms)) {
    const Index count = std::min<Index>(std::ssize(terms), width - begin);
    fill(begin, count, terms.data());
    sum.add(terms.data(), count);
  }
  return sum.total();
}

/// Returns <grad, act(gate) * up>. Column j is read before it is written, so d_gate may be gate, d_up may be
/// up and activated may be grad.
template <Activation kAct>
float backward_row(const float* gate, const float* up, const float* grad, float scale, Index width,
                   float* d_gate, float* d_up, float* activated) {
  return sum_of_pieces(width, [=](Index begin, Index count, float* terms) {
#pragma omp simd
    for (Index i = 0; i < count; ++i) {
      const Index j = begin + i;
      const vector_math::ValueSlope act = value_slope<kAct>(gate[j]);
      const float scaled_grad = scale * grad[j];
      const float product = act.value * up[j];
      terms[i] = grad[j] * product;
      const float d_gate_j = scaled_grad * up[j] * act.slope;
      const float d_up_j = scaled_grad * act.value;
      d_gate[j] = d_gate_j;
      d_up[j] = d_up_j;
      activated[j] = scale * product;
    }
  });
}

/// Where rows of results are computed: fp32 in its place, bf16 in a row of scratch, from which it is rounded.
template <typename Number>
class ResultRows {
 public:
  explicit ResultRows(BasicView<Number> rows)
      : rows_(rows), scratch_(Matrix::uninitialised(kRounds ? 1 : 0, rows.cols)) {}
  float* place(Index i) {
    if constexpr (kRounds)
      return scratch_.row(0);
    else
      return rows_.row(i);
  }
  void settle(Index i) {
    if constexpr (kRounds) {
      const float* computed = scratch_.row(0);
      Number* row = rows_.row(i);
#pragma omp simd
      for (Index j = 0; j < rows_.cols; ++j) set(row[j], computed[j]);
    }
  }

 private:
  static constexpr bool kRounds = !std::is_same_v<Number, float>;
  BasicView<Number> rows_;
  Matrix scratch_;
};

/// use(std::integral_constant<Activation, act>).
template <typename Use>
auto with_activation(Activation act, Use&& use) {
  if (act == Activation::kGeluTanh) return use(std::integral_constant<Activation, Activation::kGeluTanh>());
  if (act == Activation::kGelu) return use(std::integral_constant<Activation, Activation::kGelu>());
  return use(std::integral_constant<Activation, Activation::kSilu>());
}

/// Of a row of the gate; slope is z over the deviation, 0 where the deviation is.
struct Cut {
  float mean;
  float cutoff;
  float slope;
};

Cut cut_of(const float* gate, Index width, float z) {
  const float mean = ordered_sum(gate, width) / static_cast<float>(width);
  const float squares = ordered_sum(width, [=](Lanes sum, auto at) {
    const Lanes difference = at(gate) - mean;
    return multiply_add(difference, difference, sum);
  });
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
  const float sum = ordered_sum(
      width, [=](Lanes before, auto at) { return before + (at(cut) <= 0 ? Lanes{} : at(d_cut)); });
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

/// Whether rows come from memory: what a cache holds, it gives without being asked.
bool lies_beyond_cache(ConstMatrixView rows) {
  constexpr Index kCachedBytes = 32 * 1024 * 1024;
  return rows.size() * static_cast<Index>(sizeof(float)) > kCachedBytes;
}

template <Activation kAct, typename Number>
void dense_forward(ConstMatrixView gate_up, std::span<const float> row_scale, BasicView<Number> activated) {
  const Index width = activated.cols, last = gate_up.rows - 1;
  const bool far = lies_beyond_cache(gate_up);
  parallel_blocks(activated.rows, rows_per_task(2 * width), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      const float *gate = gate_up.row(i), *up = gate + width;
      const float scale = swiglu::scale_of(row_scale, i);
      if (far)
        forward_row_before<kAct>(gate_up.row(std::min(i + 1, last)), gate, up, scale, width,
                                 activated.row(i));
      else
        forward_row<kAct>(gate, up, scale, width, activated.row(i));
    }
  });
}

template <Activation kAct, typename Number>
void sparse_forward(float z, ConstMatrixView gate_up, std::span<const float> row_scale,
                    BasicView<Number> activated) {
  const Index width = activated.cols;
  for_each_row(activated.rows, width, [&](Index i, Matrix& scratch) {
    const float* gate = gate_up.row(i);
    cut_row(gate, cut_of(gate, width, z).cutoff, width, scratch.row(0));
    forward_row<kAct>(scratch.row(0), gate + width, swiglu::scale_of(row_scale, i), width, activated.row(i));
  });
}

/// What stands between gate and up of a row and act(gate) * up: a scale of both, limits, and numbers that
/// become one on either side, since act(alpha g) / alpha * u = act(alpha g) * (u / alpha).
struct Inputs {
  float scale, alpha, over_alpha, limit, up_offset;

  Inputs(const GatedActivation& activation, float row_scale)
      : scale(activation.scale_on == RowScaleOn::kInputs ? row_scale : 1.0f),
        alpha(activation.alpha),
        over_alpha(1 / activation.alpha),
        limit(activation.limit),
        up_offset(activation.up_offset) {}
};

// Comparisons are false for NaN, which therefore passes.

// Fields are copied by name: clang's OpenMP does not read structured bindings in a loop.

void prepare_inputs(const float* gate, const Inputs& inputs, Index width, float* prepared) {
  const float scale = inputs.scale, alpha = inputs.alpha, over_alpha = inputs.over_alpha;
  const float limit = inputs.limit, up_offset = inputs.up_offset;
  const float* up = gate + width;
#pragma omp simd
  for (Index j = 0; j < width; ++j) {
    const float scaled_gate = scale * gate[j], scaled_up = scale * up[j];
    const float above = scaled_up < -limit ? -limit : scaled_up;
    prepared[j] = alpha * (scaled_gate > limit ? limit : scaled_gate);
    prepared[width + j] = ((above > limit ? limit : above) + up_offset) * over_alpha;
  }
}

/// From the gradients of prepared inputs to those of gate and up, which may be gate's own memory. Returns
/// their scale's.
float unprepare_gradients(const float* d_prepared, const float* gate, const Inputs& inputs, Index width,
                          float* d_gate) {
  const float scale = inputs.scale, alpha = inputs.alpha, over_alpha = inputs.over_alpha;
  const float limit = inputs.limit;
  const float *up = gate + width, *d_prepared_up = d_prepared + width;
  float* d_up = d_gate + width;
  return sum_of_pieces(width, [=](Index begin, Index count, float* terms) {
#pragma omp simd
    for (Index i = 0; i < count; ++i) {
      const Index j = begin + i;
      const float plain_gate = gate[j], plain_up = up[j];
      const float d_scaled_gate = scale * plain_gate > limit ? 0.0f : alpha * d_prepared[j];
      const bool is_clamped = scale * plain_up > limit || scale * plain_up < -limit;
      const float d_scaled_up = is_clamped ? 0.0f : over_alpha * d_prepared_up[j];
      terms[i] = d_scaled_gate * plain_gate + d_scaled_up * plain_up;
      d_gate[j] = scale * d_scaled_gate;
      d_up[j] = scale * d_scaled_up;
    }
  });
}

float result_scale(const GatedActivation& activation, float row_scale) {
  return activation.scale_on == RowScaleOn::kResult ? row_scale : 1.0f;
}

template <Activation kAct, typename Number>
void prepared_forward(const GatedActivation& activation, ConstMatrixView gate_up,
                      std::span<const float> row_scale, BasicView<Number> activated) {
  const Index width = activated.cols;
  for_each_row(activated.rows, width, [&](Index i, Matrix& scratch) {
    const float scale = swiglu::scale_of(row_scale, i);
    float* prepared = scratch.row(0);
    prepare_inputs(gate_up.row(i), Inputs(activation, scale), width, prepared);
    forward_row<kAct>(prepared, prepared + width, result_scale(activation, scale), width, activated.row(i));
  });
}

float quantile_of(const GatedActivation& activation) {
  return static_cast<float>(swiglu::normal_quantile(activation.sparsity));
}

void forward(const GatedActivation& activation, ConstMatrixView gate_up, std::span<const float> row_scale,
             Rows activated) {
  swiglu::check_forward(activation, gate_up, row_scale, activated);
  with_activation(activation.act, [&](auto act) {
    std::visit(
        [&](auto view) {
          if (!activation.takes_inputs_as_they_are())
            return prepared_forward<act()>(activation, gate_up, row_scale, view);
          if (activation.sparsity == 0) return dense_forward<act()>(gate_up, row_scale, view);
          sparse_forward<act()>(quantile_of(activation), gate_up, row_scale, view);
        },
        activated);
  });
}

/// What backward reads and writes beside its two results of either kind, apart from the activation.
struct BackwardRows {
  ConstMatrixView gate_up;
  std::span<const float> row_scale;
  ConstMatrixView d_activated;
  std::span<float> d_row_scale;

  void set_d_scale(Index i, float d_scale) const {
    if (!d_row_scale.empty()) d_row_scale[static_cast<std::size_t>(i)] = d_scale;
  }
};

/// body(row, d_gate, activated, scratch [4, width]) for each row by all threads; what body writes to the
/// first two becomes the results.
template <typename GradNumber, typename Number, typename Body>
void for_each_result(BasicView<GradNumber> d_gate_up, BasicView<Number> activated, Body&& body) {
  parallel_blocks(activated.rows, rows_per_task(2 * activated.cols), [&](Index begin, Index end) {
    ResultRows<GradNumber> grads(d_gate_up);
    ResultRows<Number> results(activated);
    Matrix scratch = Matrix::uninitialised(4, activated.cols);
    for (Index i = begin; i < end; ++i) {
      body(i, grads.place(i), results.place(i), scratch);
      grads.settle(i);
      results.settle(i);
    }
  });
}

template <Activation kAct, typename GradNumber, typename Number>
void dense_backward(const BackwardRows& rows, BasicView<GradNumber> d_gate_up, BasicView<Number> activated) {
  const Index width = activated.cols;
  for_each_result(d_gate_up, activated, [&](Index i, float* d_gate, float* result, Matrix&) {
    const float *gate = rows.gate_up.row(i), *grad = rows.d_activated.row(i);
    rows.set_d_scale(i, backward_row<kAct>(gate, gate + width, grad, swiglu::scale_of(rows.row_scale, i),
                                           width, d_gate, d_gate + width, result));
  });
}

template <Activation kAct, typename GradNumber, typename Number>
void prepared_backward(const GatedActivation& activation, const BackwardRows& rows,
                       BasicView<GradNumber> d_gate_up, BasicView<Number> activated) {
  const Index width = activated.cols;
  for_each_result(d_gate_up, activated, [&](Index i, float* d_gate, float* result, Matrix& scratch) {
    const float *gate_up = rows.gate_up.row(i), *grad = rows.d_activated.row(i);
    const float scale = swiglu::scale_of(rows.row_scale, i);
    const Inputs inputs(activation, scale);
    float *prepared = scratch.row(0), *d_prepared = scratch.row(2);
    prepare_inputs(gate_up, inputs, width, prepared);
    const float of_result =
        backward_row<kAct>(prepared, prepared + width, grad, result_scale(activation, scale), width,
                           d_prepared, d_prepared + width, result);
    const float of_inputs = unprepare_gradients(d_prepared, gate_up, inputs, width, d_gate);
    rows.set_d_scale(i, activation.scale_on == RowScaleOn::kInputs ? of_inputs : of_result);
  });
}

template <Activation kAct, typename GradNumber, typename Number>
void sparse_backward(float z, const BackwardRows& rows, BasicView<GradNumber> d_gate_up,
                     BasicView<Number> activated) {
  const Index width = activated.cols;
  for_each_result(d_gate_up, activated, [&](Index i, float* d_gate, float* result, Matrix& scratch) {
    const float *gate = rows.gate_up.row(i), *grad = rows.d_activated.row(i);
    float *cut = scratch.row(0), *d_cut = scratch.row(1);
    const Cut of_row = cut_of(gate, width, z);
    cut_row(gate, of_row.cutoff, width, cut);
    rows.set_d_scale(i, backward_row<kAct>(cut, gate + width, grad, swiglu::scale_of(rows.row_scale, i),
                                           width, d_cut, d_gate + width, result));
    uncut_gradient(gate, cut, d_cut, of_row, width, d_gate);
  });
}

void backward(const GatedActivation& activation, ConstMatrixView gate_up, std::span<const float> row_scale,
              ConstMatrixView d_activated, const GatedGradients& results) {
  swiglu::check_backward(activation, gate_up, row_scale, d_activated, results);
  const BackwardRows rows{gate_up, row_scale, d_activated, results.d_row_scale};
  with_activation(activation.act, [&](auto act) {
    std::visit(
        [&](auto grad_view, auto view) {
          if (!activation.takes_inputs_as_they_are())
            return prepared_backward<act()>(activation, rows, grad_view, view);
          if (activation.sparsity == 0) return dense_backward<act()>(rows, grad_view, view);
          sparse_backward<act()>(quantile_of(activation), rows, grad_view, view);
        },
        results.d_gate_up, results.activated);
  });
}

}  // namespace

SwigluKernel fused_swiglu() {
  return {forward, backward};
}

}  // namespace moeloom
