#include "moeloom/model/linear.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <algorithm>
#include <array>

namespace moeloom {
namespace {

constexpr Index kBlockRows = 256;
constexpr Index kBlockColumns = 256;  // floats: a block's sums stay in the first-level cache

/// y (=, +=) bias in every row.
void write_bias(std::span<const float> bias, MatrixView y, Write mode) {
  parallel_blocks(y.rows, kBlockRows, [&](Index begin, Index end) {
    for (Index t = begin; t < end; ++t) {
      float* row = y.row(t);
      if (mode == Write::kReplace) {
        std::ranges::copy(bias, row);
      } else {
        for (Index j = 0; j < y.cols; ++j) row[j] += bias[at(j)];
      }
    }
  });
}

}  // namespace

Linear Linear::of(const ParameterStore& store, const std::string& weight) {
  const Parameter& parameter = store.find(weight);
  return {.weight = parameter.value, .grad = parameter.grad, .sums = store.sums(Placement::kWorld)};
}

Linear Linear::with_bias(const ParameterStore& store, const std::string& module) {
  Linear linear = of(store, module + ".weight");
  const Parameter& bias = store.find(module + ".bias");
  require(bias.value.size() == linear.out(), "a bias needs one number for each row of its weight");
  linear.bias = bias.value.flat();
  linear.bias_grad = bias.grad.flat();
  return linear;
}

void Linear::forward(const DenseKernel& kernel, ConstRows x, MatrixView y, Write mode) const {
  if (bias.empty()) return kernel.forward(x, weight, y, mode);
  write_bias(bias, y, mode);
  kernel.forward(x, weight, y, Write::kAdd);
}

void Linear::backward_weight(const DenseKernel& kernel, ConstMatrixView dy, ConstRows x) const {
  for_each_leaf(sums, dy.rows, [&](Index first, Index rows) {
    const ConstMatrixView dy_of = dy.rows_from(first, rows);
    if (grad.size() > 0) kernel.weight_grad(dy_of, x.rows_from(first, rows), grad, Write::kAdd);
    if (!bias_grad.empty()) add_row_sums(dy_of, bias_grad);
    if (sums == nullptr) return;
    if (grad.size() > 0) sums->take(grad);
    if (!bias_grad.empty()) sums->take(bias_grad);
  });
}

void Linear::backward(const DenseKernel& kernel, ConstMatrixView dy, ConstRows x, MatrixView dx,
                      Write mode) const {
  backward_weight(kernel, dy, x);
  kernel.input_grad(dy, weight, dx, mode);
}

void add_row_sums(ConstMatrixView x, std::span<float> sums) {
  require(static_cast<Index>(sums.size()) == x.cols, "a row sum needs one number for each column");
  parallel_blocks(x.cols, kBlockColumns, [&](Index first, Index last) {
    std::array<float, kBlockColumns> chunk;
    for (Index begin = 0; begin < x.rows; begin += kSumChunkRows) {
      chunk.fill(0.0f);
      for (Index t = begin; t < std::min(begin + kSumChunkRows, x.rows); ++t)
        for (Index j = first; j < last; ++j) chunk[at(j - first)] += x.row(t)[j];
      for (Index j = first; j < last; ++j) sums[at(j)] += chunk[at(j - first)];
    }
  });
}

}  // namespace moeloom
