#include "model/mixer/convolution.hpp"

#include "moeloom/base/errors.hpp"

#include <vector>

namespace moeloom {
namespace {

/// Of the segments of T tokens those that lie in `rows` tokens from `first` on, counted from there.
std::vector<Index> segments_in(std::span<const Index> segments, Index first, Index rows) {
  std::vector<Index> inside;
  for (const Index offset : segments)
    if (offset >= first && offset <= first + rows) inside.push_back(offset - first);
  require(!inside.empty() && inside.front() == 0 && inside.back() == rows,
          "no segment may lie in two leaves of a sum");
  return inside;
}

}  // namespace

Convolution::Convolution(const ParameterStore& store, const std::string& module, Index channels, Index taps,
                         bool has_bias, ConvActivation activation)
    : taps_(Linear::of_module(store, module, has_bias)), activation_(activation) {
  require(taps_.weight.rows == channels && taps_.weight.cols == taps,
          module + ".weight must have " + std::to_string(taps) + " taps of " + std::to_string(channels) +
              " channels");
}

CausalConv Convolution::over(std::span<const Index> segments) const {
  return {taps_.weight, taps_.bias, activation_, segments};
}

void Convolution::backward(Backward kernel, std::span<const Index> segments, ConstMatrixView x,
                           ConstMatrixView dy, MatrixView dx) const {
  const bool frozen = taps_.grad.rows == 0;
  Matrix nobody_reads(frozen ? taps_.weight.rows : 0, taps_.weight.cols);
  const CausalConvGradients gradients{frozen ? nobody_reads.view() : taps_.grad, taps_.bias_grad};
  for_each_leaf(taps_.sums, x.rows, [&](Index first, Index rows) {
    const std::vector<Index> inside = segments_in(segments, first, rows);
    kernel(over(inside), x.rows_from(first, rows), dy.rows_from(first, rows), dx.rows_from(first, rows),
           gradients);
    if (taps_.sums == nullptr) return;
    if (!frozen) taps_.sums->take(gradients.weight);
    if (!gradients.bias.empty()) taps_.sums->take(gradients.bias);
  });
}

}  // namespace moeloom
