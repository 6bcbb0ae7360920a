// RMSNorm's weight, its gradient and its settings; and a norm between a block's output and the residual.
#pragma once

#include "moeloom/kernels/elementwise/rmsnorm.hpp"
#include "moeloom/model/layer_spec.hpp"
#include "moeloom/model/parameters.hpp"

#include <vector>

namespace moeloom {

struct Norm {
  std::span<const float> weight;  // [D]
  std::span<float> grad;          // empty: the weight is frozen
  RmsNormSettings settings = {};
  ExactSums* sums = nullptr;  // that the gradient is a leaf of

  static Norm of(const ParameterStore& store, const std::string& name, RmsNormSettings settings = {});
  /// Throws ShapeError unless the parameter has the width that the specification says.
  static Norm of(const ParameterStore& store, const NormSpec& spec);

  /// x [T, G*D] -> y, inv_rms [T*G].
  void forward(const RmsNormKernel& kernel, ConstMatrixView x, Rows y, std::vector<float>& inv_rms) const;
  /// dx is replaced (and may be dy), the gradient is added to, or to its exact sums.
  void backward(const RmsNormKernel& kernel, ConstMatrixView dy, ConstMatrixView x,
                std::span<const float> inv_rms, MatrixView dx) const;
};

/// hidden += norm(block's output), as Glm4 and Gemma3 have it after attention and after the MLP.
class OutputNorm {
 public:
  explicit OutputNorm(Norm norm) : norm_(norm) {}

  /// Where the block writes its output [T, D]; contents unspecified.
  MatrixView input(Index rows, Index cols);
  /// Norm of the input, added to hidden [T, D].
  void forward(const RmsNormKernel& kernel, MatrixView hidden);
  /// d_hidden [T, D] -> d_input [T, D], the gradient of the block's output.
  void backward(const RmsNormKernel& kernel, ConstMatrixView d_hidden, MatrixView d_input) const;

 private:
  Norm norm_;
  Matrix input_;
  Matrix normed_;
  std::vector<float> inv_rms_;
};

}  // namespace moeloom
