// How far a result is from the one it should be: the worst row, so that one wrong row among many is seen.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/tensor/matrix.hpp"

namespace moeloom {

/// The root mean square of the rows' 2-norms; 0 without rows.
double typical_row_norm(ConstMatrixView m);

/// The largest 2-norm of a row of got - reference, over `typical`, or by itself where that is 0. NaN if a row
/// holds one. Throws ShapeError for different shapes.
double worst_row_error(ConstMatrixView got, ConstMatrixView reference, double typical);

/// The larger one; NaN if either is.
double worse(double a, double b);

/// The sum over the ranks of `comm`, the same on each. Collective.
Matrix sum_over(ConstMatrixView mine, const Communicator& comm);

}  // namespace moeloom
