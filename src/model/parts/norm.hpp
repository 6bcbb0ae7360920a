// A norm's weights, their gradients and its settings.
#pragma once

#include "model/parts/layer_spec.hpp"
#include "model/parts/parameters.hpp"
#include "moeloom/kernels/elementwise/rmsnorm.hpp"

#include <memory>
#include <vector>

namespace moeloom {

struct Norm {
  std::span<const float> weight;  // [D]
  std::span<float> grad;          // empty: the weight is frozen
  RmsNormSettings settings = {};
  ExactSums* sums = nullptr;  // that the gradients are leaves of
  NormKind kind = NormKind::kRms;
  std::span<const float> bias = {};                     // [D] of a LayerNorm that has one
  std::span<float> bias_grad = {};                      // [D], there with the bias
  std::shared_ptr<const std::vector<float>> ones = {};  // the weight of a norm that has none

  static Norm of(const ParameterStore& store, const std::string& name, RmsNormSettings settings = {});
  /// Throws ShapeError unless the parameter has the width that the specification says.
  static Norm of(const ParameterStore& store, const NormSpec& spec);
  /// x / rms(x) over groups of `width`.
  static Norm without_weight(Index width, RmsNormSettings settings);

  /// x [T, G*D] -> y, inv_rms [T*G]; G = 1 for a LayerNorm, whose inv_rms is 1 / deviation.
  void forward(const RmsNormKernel& kernel, ConstMatrixView x, Rows y, std::vector<float>& inv_rms) const;
  /// dx is replaced (and may be dy), the gradient is added to, or to its exact sums.
  void backward(const RmsNormKernel& kernel, ConstMatrixView dy, ConstMatrixView x,
                std::span<const float> inv_rms, MatrixView dx) const;
};

}  // namespace moeloom
