// The weights of a causal convolution over time, and their gradients.
#pragma once

#include "kernels/causal_conv.hpp"
#include "model/parts/linear.hpp"

#include <span>

namespace moeloom {

/// Its weight [channels, K] and bias are kept, frozen and summed as those of a dense product are.
class Convolution {
 public:
  /// module.weight and perhaps module.bias. Throws ShapeError unless the weight is [channels, taps].
  Convolution(const ParameterStore& store, const std::string& module, Index channels, Index taps,
              bool has_bias, ConvActivation activation);

  /// For the segments that the kernels are given.
  CausalConv over(std::span<const Index> segments) const;
  /// causal_conv_backward or short_conv_backward.
  using Backward = void (*)(const CausalConv& conv, ConstMatrixView x, ConstMatrixView dy, MatrixView dx,
                            const CausalConvGradients& gradients);
  /// As that kernel says, the gradients of the weights by leaf.
  void backward(Backward kernel, std::span<const Index> segments, ConstMatrixView x, ConstMatrixView dy,
                MatrixView dx) const;
  /// Inputs of one sequence that its next position needs.
  Index state_size() const { return (taps_.weight.cols - 1) * taps_.weight.rows; }

 private:
  Linear taps_;
  ConvActivation activation_;
};

}  // namespace moeloom
