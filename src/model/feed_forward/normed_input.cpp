#include "model/feed_forward/normed_input.hpp"

#include "moeloom/base/errors.hpp"
#include "tensor/scaled.hpp"

namespace moeloom {

NormedInput::NormedInput(const std::optional<NormSpec>& norm, const ParameterStore& store, float scale)
    : scale_(scale) {
  require(norm || scale == 1, "what is read without a norm has no factor");
  if (norm) norm_ = Norm::of(store, *norm);
}

void NormedInput::make(const KernelTable& kernels, ConstMatrixView hidden) {
  if (!norm_) return;
  kept_.rows.reshape_uninitialised(hidden.rows, hidden.cols);
  norm_->forward(kernels.rmsnorm, hidden, kept_.rows, kept_.inv_rms);
  if (scale_ != 1) copy_scaled(kept_.rows, scale_, kept_.rows);
}

void NormedInput::backward(const KernelTable& kernels, ConstMatrixView hidden, MatrixView d) const {
  if (scale_ != 1) copy_scaled(d, scale_, d);
  if (norm_) norm_->backward(kernels.rmsnorm, d, hidden, kept_.inv_rms, d);
}

}  // namespace moeloom
