// What both gated activations share: the checks at the door, a row's scale, and the quantile of a sparsity.
#pragma once

#include "moeloom/kernels/elementwise/swiglu.hpp"

namespace moeloom::swiglu {

void check_forward(const GatedActivation& activation, ConstMatrixView gate_up,
                   std::span<const float> row_scale, ConstRows activated);
void check_backward(const GatedActivation& activation, ConstMatrixView gate_up,
                    std::span<const float> row_scale, ConstMatrixView d_activated,
                    const GatedGradients& results);

inline float scale_of(std::span<const float> row_scale, Index row) {
  return row_scale.empty() ? 1.0f : row_scale[static_cast<std::size_t>(row)];
}

/// z with P(Z <= z) = probability for a standard normal Z; probability in (0, 1).
double normal_quantile(double probability);

}  // namespace moeloom::swiglu
