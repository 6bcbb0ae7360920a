// Gradients of a caller's arrays over ranks.
#pragma once

#include "moeloom/c/moeloom.h"
#include "moeloom/comm/communicator.hpp"

#include <span>
#include <string>

namespace moeloom::c {

/// " of 12 numbers in 2 arrays, 8d1c2f34": how many, and what tells their sizes and which are ML_F64.
/// Throws ShapeError, Refusal for arrays that have no sum.
std::string text_of_sum(std::span<const ml_array* const> arrays);

/// Each becomes scale times its sum along the tree. Collective over the ranks, whose arrays have the same
/// shapes. What is ML_F64 is added up in it.
void sum_over(const Communicator& ranks, std::span<const ml_array* const> arrays, double scale);

}  // namespace moeloom::c
