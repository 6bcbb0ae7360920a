// One dense weight [out, in] and its gradient.
#pragma once

#include "moeloom/model/parameters.hpp"
#include "moeloom/tensor/gemm.hpp"

namespace moeloom {

struct Linear {
  MatrixView weight;  // [out, in]
  MatrixView grad;    // without rows where the weight is frozen

  static Linear of(const ParameterStore& store, const std::string& name) {
    const Parameter& parameter = store.find(name);
    return {parameter.value, parameter.grad};
  }
  Index out() const { return weight.rows; }

  /// y [T, out], written or added to.
  void forward(ConstMatrixView x, MatrixView y, Write mode = Write::kReplace) const {
    matmul(x, weight, y, mode);
  }
  /// dx [T, in], written or added to; the gradient is added to.
  void backward(ConstMatrixView dy, ConstMatrixView x, MatrixView dx, Write mode = Write::kReplace) const {
    if (grad.rows > 0) matmul_weight_grad(dy, x, grad);
    matmul_input_grad(dy, weight, dx, mode);
  }
};

/// RMSNorm's weight [D] and its gradient.
struct Norm {
  std::span<const float> weight;
  std::span<float> grad;

  static Norm of(const ParameterStore& store, const std::string& name) {
    const Parameter& parameter = store.find(name);
    return {parameter.value.flat(), parameter.grad.flat()};
  }
};

}  // namespace moeloom
