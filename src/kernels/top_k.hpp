// The k largest of a row, for routers: many rows of tens or hundreds of values, k about ten.
#pragma once

#include "moeloom/base/index.hpp"

#include <cstdint>

namespace moeloom {

/// The places of the k <= n largest of values [n], by falling value and, among equal ones, by rising place.
/// NaN comes after every number, so that chosen [k] are k different places whatever the values.
void largest_of(const float* values, Index n, Index k, std::int32_t* chosen);

}  // namespace moeloom
