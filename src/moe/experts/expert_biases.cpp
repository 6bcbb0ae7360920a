#include "experts/expert_biases.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/eight.hpp"

#include <algorithm>

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 32;

/// visit(group, row) for every row, by all threads.
template <typename Visit>
void for_each_row(const GroupedRows& groups, Index rows, Visit visit) {
  std::vector<Index> ends;
  Index end = 0;
  for (Index g = 0; g < groups.groups(); ++g) ends.push_back(end += groups.of_group(g));
  require(end == rows, "biases are of as many rows as the groups have");
  parallel_blocks(rows, kRowsPerTask, [&](Index first, Index last) {
    auto group = std::ranges::upper_bound(ends, first);
    for (Index row = first; row < last; ++row) {
      while (*group <= row) ++group;
      visit(group - ends.begin(), row);
    }
  });
}

/// In eight sums, whoever counts.
float dot(const float* a, const float* b, Index count) {
  Eight sums{};
  Index j = 0;
  for (; j + 8 <= count; j += 8) sums += load8(a + j) * load8(b + j);
  float sum = 0;
  for (; j < count; ++j) sum += a[j] * b[j];
  for (int lane = 0; lane < 8; ++lane) sum += sums[lane];
  return sum;
}

/// row = scale * row + weight * bias.
void add_bias(float scale, float weight, const float* bias, Index count, float* row) {
  for (Index j = 0; j < count; ++j) row[j] = scale * row[j] + weight * bias[j];
}

}  // namespace

void check_biases(const ExpertShard& shard) {
  const auto fits = [&](ConstMatrixView biases, Index cols) {
    return biases.rows == shard.experts && biases.cols == cols;
  };
  const auto& [gate_up, down, d_gate_up, d_down] = shard.biases;
  if (gate_up.cols == 0 && down.cols == 0) return;
  require(fits(gate_up, 2 * shard.down.cols) && fits(down, shard.gate_up.cols),
          "biases of experts must be [experts, 2 F] and [experts, D], of both products or of neither");
  require(
      (d_gate_up.rows == 0 || fits(d_gate_up, gate_up.cols)) && (d_down.rows == 0 || fits(d_down, down.cols)),
      "gradients of experts' biases must have the shapes of the biases, or no row");
}

void BiasedRows::finish_gate_up(MatrixView gate_up) const {
  if (!biases.any()) return;
  for_each_row(groups, gate_up.rows, [&](Index group, Index i) {
    add_bias(scales_rows ? weights[at(i)] : 1.0f, 1.0f, biases.gate_up.row(group), gate_up.cols,
             gate_up.row(i));
  });
}

void BiasedRows::finish_output(MatrixView output) const {
  if (!biases.any()) return;
  for_each_row(groups, output.rows, [&](Index group, Index i) {
    add_bias(1.0f, scales_rows || weights.empty() ? 1.0f : weights[at(i)], biases.down.row(group),
             output.cols, output.row(i));
  });
}

void BiasedRows::finish_backward(ConstMatrixView d_rows, MatrixView x, MatrixView dx,
                                 std::span<float> d_weights) const {
  if (!biases.any()) return;
  for_each_row(groups, d_rows.rows, [&](Index group, Index i) {
    if (!scales_rows) {
      d_weights[at(i)] += dot(d_rows.row(i), biases.down.row(group), d_rows.cols);
      return;
    }
    d_weights[at(i)] = dot(dx.row(i), x.row(i), x.cols);
    for (const MatrixView rows : {x, dx})
      for (float& value : std::span(rows.row(i), at(rows.cols))) value *= weights[at(i)];
  });
}

}  // namespace moeloom
