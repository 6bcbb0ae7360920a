#include "kernels/elementwise/vector_math.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/ordered_sum.hpp"

#include <cmath>

#include "elementwise/rmsnorm_groups.hpp"
#include "elementwise/row_tasks.hpp"
#include "elementwise/streaming.hpp"

namespace moeloom {
namespace {

float inv_rms_of(const float* x, Index width, float eps) {
  return 1.0f / std::sqrt(ordered_dot(x, x, width) / static_cast<float>(width) + eps);
}

/// The columns that are normalised together: of one row, width of them.
struct Group {
  const float* weight;
  float offset;
  Index width;
  float inv;
};

template <typename Number>
void scale_group(const float* x, Group group, Number* y) {
  const float* weight = group.weight;  // clang's OpenMP takes no structured bindings
  const float offset = group.offset, inv = group.inv;
  const Index width = group.width;
#pragma omp simd
  for (Index j = 0; j < width; ++j) set(y[j], x[j] * inv * (weight[j] + offset));
}

/// The same past the cache, while the next group to be summed is fetched into it: so that reading and writing
/// overlap. width is whole lines.
template <typename Number>
void stream_group(const float* x, const float* next, Group group, Number* y) {
  constexpr Index kLine = streaming::kLine<Number>;
  for (Index begin = 0; begin < group.width; begin += kLine) {
    for (Index read = 0; read < kLine; read += streaming::kLine<float>)
      __builtin_prefetch(next + begin + read);
    alignas(64) Number line[kLine];
    scale_group(x + begin, {group.weight + begin, group.offset, kLine, group.inv}, line);
    streaming::write_line(line, y + begin);
  }
}

void scale_group_gated(const float* x, const float* gate, Group group, float* y) {
  const float* weight = group.weight;  // clang's OpenMP takes no structured bindings
  const float offset = group.offset, inv = group.inv;
  const Index width = group.width;
#pragma omp simd
  for (Index j = 0; j < width; ++j) y[j] = x[j] * inv * (weight[j] + offset) * vector_math::silu(gate[j]);
}

/// inv_rms of each group, and scale(row, first column, inv_rms) of it, by all threads.
template <typename Scale>
void normalise_groups(ConstMatrixView x, Index groups, Index width, float eps, std::span<float> inv_rms,
                      Scale&& scale) {
  parallel_blocks(x.rows, rows_per_task(x.cols), [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i) {
      for (Index g = 0; g < groups; ++g) {
        const float inv = inv_rms_of(x.row(i) + g * width, width, eps);
        scale(i, g * width, inv);
        inv_rms[static_cast<std::size_t>(i * groups + g)] = inv;
      }
    }
    streaming::finish();
  });
}

template <typename Number>
void forward_to(ConstMatrixView x, std::span<const float> weight, RmsNormSettings settings,
                BasicView<Number> y, std::span<float> inv_rms) {
  const Index width = static_cast<Index>(weight.size()), groups = x.cols / width;
  const float offset = settings.weight_offset;
  const bool in_place = static_cast<const void*>(y.data) == x.data;
  if (streaming::pays(y, width) && !in_place) {
    return normalise_groups(x, groups, width, settings.eps, inv_rms, [&](Index i, Index column, float inv) {
      const float* next = x.row(std::min(i + 1, x.rows - 1)) + column;
      stream_group(x.row(i) + column, next, {weight.data(), offset, width, inv}, y.row(i) + column);
    });
  }
  normalise_groups(x, groups, width, settings.eps, inv_rms, [&](Index i, Index column, float inv) {
    scale_group(x.row(i) + column, {weight.data(), offset, width, inv}, y.row(i) + column);
  });
}

void forward(ConstMatrixView x, std::span<const float> weight, RmsNormSettings settings, Rows y,
             std::span<float> inv_rms) {
  rmsnorm::check_forward(x, weight, y, inv_rms);
  std::visit([&](auto view) { forward_to(x, weight, settings, view, inv_rms); }, y);
}

void gated_forward(ConstMatrixView x, ConstMatrixView gate, std::span<const float> weight,
                   RmsNormSettings settings, MatrixView y, std::span<float> inv_rms) {
  const Index groups = rmsnorm::check_forward(x, weight, y, inv_rms);
  rmsnorm::check_gate(x, gate);
  const Index width = static_cast<Index>(weight.size());
  normalise_groups(x, groups, width, settings.eps, inv_rms, [&](Index i, Index column, float inv) {
    scale_group_gated(x.row(i) + column, gate.row(i) + column,
                      {weight.data(), settings.weight_offset, width, inv}, y.row(i) + column);
  });
}

float weighted_dot(const float* weight, float offset, const float* dy, const float* x, Index width) {
  return ordered_sum(
      width, [=](Lanes sum, auto at) { return multiply_add((at(weight) + offset) * at(dy), at(x), sum); });
}

/// mean: of the products of a column's normed input and its gradient.
float mean_product(const float* dy, const float* x, Group group) {
  const float sum = weighted_dot(group.weight, group.offset, dy, x, group.width);
  return sum * group.inv / static_cast<float>(group.width);
}

void columns_backward(const float* dy, const float* x, Group group, float mean, float* dx, float* dw) {
  const float* weight = group.weight;  // clang's OpenMP takes no structured bindings
  const float offset = group.offset, inv = group.inv;
  const Index width = group.width;
#pragma omp simd
  for (Index j = 0; j < width; ++j) {
    const float normed = x[j] * inv;
    const float grad = dy[j];
    dw[j] += grad * normed;
    dx[j] = inv * ((weight[j] + offset) * grad - normed * mean);
  }
}

void group_backward(const float* dy, const float* x, Group group, float* dx, float* dw) {
  columns_backward(dy, x, group, mean_product(dy, x, group), dx, dw);
}

/// The same past the cache, as stream_group().
void stream_backward(const float* dy, const float* x, Index to_next_dy, Index to_next_x, Group group,
                     float* dx, float* dw) {
  constexpr Index kLine = streaming::kLine<float>;
  const float mean = mean_product(dy, x, group);
  for (Index j = 0; j < group.width; j += kLine) {
    __builtin_prefetch(dy + j + to_next_dy);
    __builtin_prefetch(x + j + to_next_x);
    alignas(64) float line[kLine];
    columns_backward(dy + j, x + j, {group.weight + j, group.offset, kLine, group.inv}, mean, line, dw + j);
    streaming::write_line(line, dx + j);
  }
}

/// The gate's gradient, and in d_normed (which may be dy) that of the norm's result.
void gate_backward(const float* dy, const float* x, const float* gate, Group group, float* d_normed,
                   float* d_gate) {
  const float* weight = group.weight;  // clang's OpenMP takes no structured bindings
  const float offset = group.offset, inv = group.inv;
  const Index width = group.width;
#pragma omp simd
  for (Index j = 0; j < width; ++j) {
    const vector_math::ValueSlope silu = vector_math::silu_slope(gate[j]);
    const float grad = dy[j];
    d_gate[j] = grad * (x[j] * inv * (weight[j] + offset)) * silu.slope;
    d_normed[j] = grad * silu.value;
  }
}

/// add_group(row, first column, inv_rms, sum) for each group, chunks of rows by all threads.
template <typename AddGroup>
void add_groups(Index rows, Index groups, std::span<const float> inv_rms, std::span<float> d_weight,
                AddGroup&& add_group) {
  const Index width = static_cast<Index>(d_weight.size());
  const auto on_threads = [](Index count, auto&& body) { parallel_for(count, body); };
  rmsnorm::add_in_chunks(rows, d_weight, on_threads, [&](Index begin, Index end, float* sum) {
    for (Index i = begin; i < end; ++i) {
      for (Index g = 0; g < groups; ++g)
        add_group(i, g * width, inv_rms[static_cast<std::size_t>(i * groups + g)], sum);
    }
    streaming::finish();
  });
}

void backward(const NormedRows& normed, ConstMatrixView dy, MatrixView dx, std::span<float> d_weight) {
  const Index groups = rmsnorm::check_backward(normed, dy, dx, d_weight);
  const ConstMatrixView x = normed.x;  // clang before 19 captures no structured binding
  const std::span<const float> weight = normed.weight;
  const Index width = static_cast<Index>(weight.size());
  const bool streams = streaming::pays(dx, width) && dx.data != dy.data && dx.data != x.data;
  add_groups(x.rows, groups, normed.inv_rms, d_weight, [&](Index i, Index column, float inv, float* sum) {
    const float *grad = dy.row(i) + column, *in = x.row(i) + column;
    float* const out = dx.row(i) + column;
    const Group group{weight.data(), normed.settings.weight_offset, width, inv};
    if (streams)
      stream_backward(grad, in, i + 1 < x.rows ? dy.stride : 0, i + 1 < x.rows ? x.stride : 0, group, out,
                      sum);
    else
      group_backward(grad, in, group, out, sum);
  });
}

void gated_backward(const NormedRows& normed, ConstMatrixView gate, ConstMatrixView dy, MatrixView dx,
                    MatrixView d_gate, std::span<float> d_weight) {
  const Index groups = rmsnorm::check_backward(normed, dy, dx, d_weight);
  const ConstMatrixView x = normed.x;  // clang before 19 captures no structured binding
  const std::span<const float> weight = normed.weight;
  rmsnorm::check_gate(x, gate);
  rmsnorm::check_gate(x, d_gate);
  const Index width = static_cast<Index>(weight.size());
  const float offset = normed.settings.weight_offset;
  add_groups(x.rows, groups, normed.inv_rms, d_weight, [&](Index i, Index column, float inv, float* sum) {
    const float* in = x.row(i) + column;
    float* out = dx.row(i) + column;  // holds the gradient of the norm's result while it is in the cache
    const Group group{weight.data(), offset, width, inv};
    gate_backward(dy.row(i) + column, in, gate.row(i) + column, group, out, d_gate.row(i) + column);
    group_backward(out, in, group, out, sum);
  });
}

}  // namespace

RmsNormKernel fused_rmsnorm() {
  return {forward, backward, gated_forward, gated_backward};
}

}  // namespace moeloom
