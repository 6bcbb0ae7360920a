#include "moeloom/kernels/grouped_matmul.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <numeric>

namespace moeloom {

void GroupedWeights::check() const {
  if (separate.empty()) {
    require(groups * out() == stacked.rows(), "stacked weights need the same number of rows for every group");
    return;
  }
  require(static_cast<Index>(separate.size()) == groups, "separate weights need a matrix for every group");
  require(std::ranges::all_of(separate,
                              [&](const ConstMatrixView& w) { return w.rows == out() && w.cols == in(); }),
          "separate weights of grouped matmul must all have the shape of the first");
}

void GroupedGradients::check(Index groups, Index out, Index in) const {
  if (separate_.empty()) {
    const ConstRows all = stacked_;
    require(all.rows() == groups * out && all.cols() == in,
            "weight_grad: dw must be [groups * dy.cols, x.cols]");
    require(sums_ == nullptr || all.type() == DType::kF32, "leaves of exact sums are fp32");
    return;
  }
  require(static_cast<Index>(separate_.size()) == groups &&
              std::ranges::all_of(separate_,
                                  [&](const MatrixView& dw) { return dw.rows == out && dw.cols == in; }),
          "weight_grad: there must be a dw [dy.cols, x.cols] for every group");
}

Index GroupedRows::of_group(Index g) const {
  const auto first = rows_per_source.begin() + static_cast<std::ptrdiff_t>(g * sources);
  return std::reduce(first, first + static_cast<std::ptrdiff_t>(sources), Index{0});
}

Index GroupedRows::total() const {
  return std::reduce(rows_per_source.begin(), rows_per_source.end(), Index{0});
}

void GroupedRows::check(ConstRows input, ConstRows output) const {
  require(input.rows() == total() && output.rows() == input.rows(),
          "grouped matmul needs as many rows as its groups have");
}

}  // namespace moeloom
