#include "moeloom/model/norm.hpp"

#include "moeloom/base/errors.hpp"

namespace moeloom {

Norm Norm::of(const ParameterStore& store, const std::string& name, RmsNormSettings settings) {
  const Parameter& parameter = store.find(name);
  return {parameter.value.flat(), parameter.grad.flat(), settings, store.sums(Placement::kWorld)};
}

Norm Norm::of(const ParameterStore& store, const NormSpec& spec) {
  const Norm norm = of(store, spec.name, spec.settings);
  require(static_cast<Index>(norm.weight.size()) == spec.width, spec.name + " must have the norm's width");
  return norm;
}

void Norm::forward(const RmsNormKernel& kernel, ConstMatrixView x, Rows y,
                   std::vector<float>& inv_rms) const {
  inv_rms.resize(at(x.size()) / weight.size());
  kernel.forward(x, weight, settings, y, inv_rms);
}

void Norm::backward(const RmsNormKernel& kernel, ConstMatrixView dy, ConstMatrixView x,
                    std::span<const float> inv_rms, MatrixView dx) const {
  std::vector<float> nobody_reads(grad.empty() ? weight.size() : 0);
  const Index groups = x.rows == 0 ? 0 : std::ssize(inv_rms) / x.rows;
  for_each_leaf(sums, x.rows, [&](Index first, Index rows) {
    kernel.backward(
        {x.rows_from(first, rows), weight, settings, inv_rms.subspan(at(first * groups), at(rows * groups))},
        dy.rows_from(first, rows), dx.rows_from(first, rows), grad.empty() ? nobody_reads : grad);
    if (sums != nullptr && !grad.empty()) sums->take(grad);
  });
}

MatrixView OutputNorm::input(Index rows, Index cols) {
  input_.reshape_uninitialised(rows, cols);
  return input_;
}

void OutputNorm::forward(const RmsNormKernel& kernel, MatrixView hidden) {
  normed_.reshape_uninitialised(hidden.rows, hidden.cols);
  norm_.forward(kernel, input_, normed_, inv_rms_);
  add(normed_, hidden);
}

void OutputNorm::backward(const RmsNormKernel& kernel, ConstMatrixView d_hidden, MatrixView d_input) const {
  norm_.backward(kernel, d_hidden, input_, inv_rms_, d_input);
}

}  // namespace moeloom
