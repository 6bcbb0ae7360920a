// Gradients of a caller's arrays over ranks.
#pragma once

#include "moeloom/c/moeloom.h"
#include "moeloom/comm/communicator.hpp"

#include <span>

namespace moeloom::c {

/// Elements of all together. Throws ShapeError, Refusal for arrays that have no sum.
Index numbers_in(std::span<const ml_array* const> arrays);

/// Each becomes scale times its sum along the tree. Collective over the ranks, whose arrays have the same
/// shapes. What is ML_F64 is added up in it.
void sum_over(const Communicator& ranks, std::span<const ml_array* const> arrays, double scale);

}  // namespace moeloom::c
