// What stands between a block's output and the residual stream, where something does: a norm (Glm4, Gemma3,
// OLMo2), a factor (Granite), or both.
#pragma once

#include "model/parts/norm.hpp"

#include <optional>

namespace moeloom {

/// hidden += scale * norm(output) of attention, an MLP or experts.
class BranchOutput {
 public:
  explicit BranchOutput(std::optional<Norm> norm, float scale = 1) : norm_(std::move(norm)), scale_(scale) {}
  /// None where the block adds its output to the stream itself.
  static std::optional<BranchOutput> of(const ParameterStore& store, const std::optional<NormSpec>& norm,
                                        float scale);

  /// Where the block writes its output [T, D]; contents unspecified.
  MatrixView input(Index rows, Index cols);
  /// What becomes of the input, added to hidden [T, D].
  void forward(const RmsNormKernel& kernel, MatrixView hidden);
  /// d_hidden [T, D] -> d_input [T, D], the gradient of the block's output.
  void backward(const RmsNormKernel& kernel, ConstMatrixView d_hidden, MatrixView d_input) const;
  /// Of one with so many columns, where of() gives one.
  static double bytes_of(const std::optional<NormSpec>& norm, float scale, Index tokens, Index cols) {
    return norm ? rows_bytes(tokens, {cols, cols, 1}) : scale != 1 ? rows_bytes(tokens, {cols}) : 0.0;
  }

 private:
  std::optional<Norm> norm_;
  float scale_;
  Matrix input_;
  Matrix normed_;
  std::vector<float> inv_rms_;
};

}  // namespace moeloom
