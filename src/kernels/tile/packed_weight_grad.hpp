// Weight gradients of grouped rows: a group's dy^T x, its sums in the one order.
#pragma once

#include "moeloom/kernels/grouped_matmul.hpp"

namespace moeloom::packed {

/// GroupedMatmulKernel::weight_grad on the register tile; dy and x become Element on the way.
template <typename Element>
void grouped_weight_grad(ConstRows dy, ConstRows x, const GroupedRows& rows, const GroupedGradients& dw,
                         Write mode);

}  // namespace moeloom::packed
