// What a part of a layer reads of the residual stream: its norm, where it has one, perhaps times a number.
#pragma once

#include "model/parts/norm.hpp"
#include "moeloom/kernels/registry.hpp"

#include <optional>
#include <utility>
#include <vector>

namespace moeloom {

/// What a norm gives, and what its backward needs besides.
struct KeptNorm {
  Matrix rows;                 // [T, D]
  std::vector<float> inv_rms;  // [T]
};

class NormedInput {
 public:
  NormedInput(const std::optional<NormSpec>& norm, const ParameterStore& store, float scale = 1);

  /// Of the rows of hidden [T, D] that are asked for from now on.
  void make(const KernelTable& kernels, ConstMatrixView hidden);
  /// What is read: made of `hidden`, or that itself.
  ConstMatrixView of(ConstMatrixView hidden) const { return norm_ ? kept_.rows.view() : hidden; }
  /// d [T, D], gradient of what is read, becomes that of `hidden`.
  void backward(const KernelTable& kernels, ConstMatrixView hidden, MatrixView d) const;

  /// With what was made, or without the inverse roots.
  friend void swap(NormedInput& input, KeptNorm& other) { std::swap(input.kept_, other); }
  friend void swap(NormedInput& input, Matrix& rows) { std::swap(input.kept_.rows, rows); }

 private:
  std::optional<Norm> norm_;
  float scale_;
  KeptNorm kept_;  // unused without a norm
};

}  // namespace moeloom
