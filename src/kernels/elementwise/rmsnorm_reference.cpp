#include <cmath>

#include "elementwise/rmsnorm_groups.hpp"

namespace moeloom {
namespace {

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

float inv_rms_of(const float* x, Index width, float eps) {
  double squares = 0;
  for (Index j = 0; j < width; ++j) squares += static_cast<double>(x[j]) * x[j];
  return static_cast<float>(1.0 / std::sqrt(squares / static_cast<double>(width) + eps));
}

double weight_at(std::span<const float> weight, Index j, RmsNormSettings settings) {
  return static_cast<double>(weight[static_cast<std::size_t>(j)]) + settings.weight_offset;
}

/// body(row, first column, group number over all rows) for the groups of rows [begin, end).
template <typename Body>
void for_each_group(Index begin, Index end, Index groups, Index width, Body&& body) {
  for (Index i = begin * groups; i < end * groups; ++i)
    body(i / groups, i % groups * width, static_cast<std::size_t>(i));
}

void forward(ConstMatrixView x, std::span<const float> weight, RmsNormSettings settings, Rows y,
             std::span<float> inv_rms) {
  const Index groups = rmsnorm::check_forward(x, weight, y, inv_rms);
  const Index width = static_cast<Index>(weight.size());
  for_each_group(0, x.rows, groups, width, [&](Index row, Index column, std::size_t group) {
    inv_rms[group] = inv_rms_of(x.row(row) + column, width, settings.eps);
    for (Index j = 0; j < width; ++j)
      set(y, row, column + j,
          static_cast<float>(x(row, column + j) * inv_rms[group] * weight_at(weight, j, settings)));
  });
}

/// With n = x inv_rms: dx = inv_rms (w dy - n mean(w dy n)), dw = dy n.
void group_backward(const NormedRows& normed, std::size_t group, const float* dy, const float* x, float* dx,
                    float* dw) {
  const auto& [_, weight, settings, inv_rms] = normed;
  const float inv = inv_rms[group];
  const Index width = static_cast<Index>(weight.size());
  double dot = 0;
  for (Index j = 0; j < width; ++j) dot += weight_at(weight, j, settings) * dy[j] * x[j] * inv;
  const double mean = dot / static_cast<double>(width);
  for (Index j = 0; j < width; ++j) {
    const float n = x[j] * inv;
    dw[j] += dy[j] * n;
    dx[j] = static_cast<float>(inv * (weight_at(weight, j, settings) * dy[j] - n * mean));
  }
}

/// One chunk after the other, as the fused kernel's threads share them out.
constexpr auto serially = [](Index count, auto&& body) {
  for (Index i = 0; i < count; ++i) body(i);
};

void backward(const NormedRows& normed, ConstMatrixView dy, MatrixView dx, std::span<float> d_weight) {
  const Index groups = rmsnorm::check_backward(normed, dy, dx, d_weight);
  const ConstMatrixView x = normed.x;
  const Index width = static_cast<Index>(normed.weight.size());
  rmsnorm::add_in_chunks(x.rows, d_weight, serially, [&](Index begin, Index end, float* sum) {
    for_each_group(begin, end, groups, width, [&](Index row, Index column, std::size_t group) {
      group_backward(normed, group, dy.row(row) + column, x.row(row) + column, dx.row(row) + column, sum);
    });
  });
}

void gated_forward(ConstMatrixView x, ConstMatrixView gate, std::span<const float> weight,
                   RmsNormSettings settings, MatrixView y, std::span<float> inv_rms) {
  rmsnorm::check_forward(x, weight, y, inv_rms);
  rmsnorm::check_gate(x, gate);
  Matrix normed(x.rows, x.cols);
  forward(x, weight, settings, normed, inv_rms);
  for (Index i = 0; i < x.rows; ++i)
    for (Index j = 0; j < x.cols; ++j)
      y(i, j) = static_cast<float>(normed.row(i)[j] * gate(i, j) * sigmoid(gate(i, j)));
}

void gated_backward(const NormedRows& normed, ConstMatrixView gate, ConstMatrixView dy, MatrixView dx,
                    MatrixView d_gate, std::span<float> d_weight) {
  const Index groups = rmsnorm::check_backward(normed, dy, dx, d_weight);
  const ConstMatrixView x = normed.x;  // clang before 19 captures no structured binding
  const std::span<const float> weight = normed.weight;
  rmsnorm::check_gate(x, gate);
  rmsnorm::check_gate(x, d_gate);
  const Index width = static_cast<Index>(weight.size());
  Matrix d_normed(x.rows, x.cols);
  for_each_group(0, x.rows, groups, width, [&](Index row, Index column, std::size_t group) {
    for (Index j = 0; j < width; ++j) {
      const double g = gate(row, column + j), grad = dy(row, column + j);
      const double y = x(row, column + j) * normed.inv_rms[group] * weight_at(weight, j, normed.settings);
      d_gate(row, column + j) = static_cast<float>(grad * y * sigmoid(g) * (1 + g * sigmoid(-g)));
      d_normed.row(row)[column + j] = static_cast<float>(grad * g * sigmoid(g));
    }
  });
  backward(normed, d_normed, dx, d_weight);
}

}  // namespace

RmsNormKernel reference_rmsnorm() {
  return {forward, backward, gated_forward, gated_backward};
}

}  // namespace moeloom
