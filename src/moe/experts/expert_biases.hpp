// Biases of experts, row by row. A bias is a weight whose input is 1 (for the down product: the routing
// weight), so its gradient is a weight gradient of one column: grouped products make it, in their one order.
#pragma once

#include "moe/experts/experts.hpp"

namespace moeloom {

/// What biases do to rows of some experts; nothing where there are none.
struct BiasedRows {
  const ExpertBiases& biases;  // a row a group
  bool scales_rows;            // ExpertShard's
  const GroupedRows& groups;
  std::span<const float> weights;  // [R], routing weights; empty: 1

  /// What the activation is to scale its rows by: the weights, unless they are on the rows of X.
  std::span<const float> row_scale() const { return scales_rows ? std::span<const float>() : weights; }
  /// Z [R, 2F] of the first product -> what the activation reads.
  void finish_gate_up(MatrixView gate_up) const;
  /// Y [R, D] of the second product, without its bias -> Y.
  void finish_output(MatrixView output) const;
  /// What the activation's backward left of d_weights [R] is made whole. Where rows are scaled, x and dx
  /// [R, D], the gradient of weight * x, become weight * x and the gradient of x.
  void finish_backward(ConstMatrixView d_rows, MatrixView x, MatrixView dx, std::span<float> d_weights) const;
};

/// Throws ShapeError for biases of other widths than the weights, or of one product alone.
void check_biases(const ExpertShard& shard);

/// The activation between the products.
inline GatedActivation activation_of(const ExpertShard& shard) {
  GatedActivation activation = shard.activation;
  if (shard.scales_rows()) activation.scale_on = RowScaleOn::kResult;
  return activation;
}

/// Numbers as a matrix of one column.
inline ConstMatrixView as_column(std::span<const float> numbers) {
  return {numbers.data(), std::ssize(numbers), 1};
}

}  // namespace moeloom
