#include "model/parts/branch_output.hpp"

#include "tensor/scaled.hpp"

namespace moeloom {

std::optional<BranchOutput> BranchOutput::of(const ParameterStore& store, const std::optional<NormSpec>& norm,
                                             float scale) {
  if (norm) return BranchOutput(Norm::of(store, *norm), scale);
  if (scale != 1) return BranchOutput(std::nullopt, scale);
  return std::nullopt;
}

MatrixView BranchOutput::input(Index rows, Index cols) {
  input_.reshape_uninitialised(rows, cols);
  return input_;
}

void BranchOutput::forward(const RmsNormKernel& kernel, MatrixView hidden) {
  if (!norm_) return add_scaled(input_, scale_, hidden);
  normed_.reshape_uninitialised(hidden.rows, hidden.cols);
  norm_->forward(kernel, input_, normed_, inv_rms_);
  if (scale_ == 1) return add(normed_, hidden);
  add_scaled(normed_, scale_, hidden);
}

void BranchOutput::backward(const RmsNormKernel& kernel, ConstMatrixView d_hidden, MatrixView d_input) const {
  if (norm_ && scale_ == 1) return norm_->backward(kernel, d_hidden, input_, inv_rms_, d_input);
  copy_scaled(d_hidden, scale_, d_input);
  if (norm_) norm_->backward(kernel, d_input, input_, inv_rms_, d_input);
}

}  // namespace moeloom
