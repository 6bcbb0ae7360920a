#include "model/parts/norm.hpp"

#include "kernels/elementwise/layernorm.hpp"
#include "moeloom/base/errors.hpp"

namespace moeloom {

Norm Norm::of(const ParameterStore& store, const std::string& name, RmsNormSettings settings) {
  const Parameter& parameter = store.find(name);
  return {parameter.value.flat(), parameter.grad.flat(), settings, store.sums(Placement::kWorld)};
}

Norm Norm::of(const ParameterStore& store, const NormSpec& spec) {
  Norm norm = of(store, spec.name, spec.settings);
  require(static_cast<Index>(norm.weight.size()) == spec.width, spec.name + " must have the norm's width");
  norm.kind = spec.kind;
  if (spec.kind != NormKind::kLayer) return norm;
  const Parameter& bias = store.find(spec.bias_name());
  require(bias.value.size() == spec.width, spec.bias_name() + " must have the norm's width");
  norm.bias = bias.value.flat();
  norm.bias_grad = bias.grad.flat();
  return norm;
}

Norm Norm::without_weight(Index width, RmsNormSettings settings) {
  Norm norm;
  norm.settings = settings;
  norm.ones = std::make_shared<const std::vector<float>>(at(width), 1.0f);
  norm.weight = *norm.ones;
  return norm;
}

void Norm::forward(const RmsNormKernel& kernel, ConstMatrixView x, Rows y,
                   std::vector<float>& inv_rms) const {
  inv_rms.resize(at(x.size()) / weight.size());
  if (kind == NormKind::kRms) return kernel.forward(x, weight, settings, y, inv_rms);
  layernorm_forward(x, {weight, bias, settings.eps}, y, inv_rms);
}

void Norm::backward(const RmsNormKernel& kernel, ConstMatrixView dy, ConstMatrixView x,
                    std::span<const float> inv_rms, MatrixView dx) const {
  std::vector<float> nobody_reads(grad.empty() ? weight.size() : 0);
  const std::span<float> d_weight = grad.empty() ? nobody_reads : grad;
  const Index groups = x.rows == 0 ? 0 : std::ssize(inv_rms) / x.rows;
  for_each_leaf(sums, x.rows, [&](Index first, Index rows) {
    const ConstMatrixView x_of = x.rows_from(first, rows), dy_of = dy.rows_from(first, rows);
    const MatrixView dx_of = dx.rows_from(first, rows);
    const auto scales = inv_rms.subspan(at(first * groups), at(rows * groups));
    if (kind == NormKind::kRms)
      kernel.backward({x_of, weight, settings, scales}, dy_of, dx_of, d_weight);
    else
      layernorm_backward(x_of, {weight, bias, settings.eps}, scales, dy_of, dx_of, {d_weight, bias_grad});
    if (sums == nullptr) return;
    if (!grad.empty()) sums->take(grad);
    if (!bias_grad.empty()) sums->take(bias_grad);
  });
}

}  // namespace moeloom
