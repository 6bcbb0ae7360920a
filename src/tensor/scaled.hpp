// A matrix times a number.
#pragma once

#include "moeloom/tensor/matrix.hpp"

namespace moeloom {

// By the rank's threads; of equal shapes.
/// target += factor * source.
void add_scaled(ConstMatrixView source, float factor, MatrixView target);
/// target = factor * source; they may be the same.
void copy_scaled(ConstMatrixView source, float factor, MatrixView target);

}  // namespace moeloom
