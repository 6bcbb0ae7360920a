// Values of many steps, made few enough to draw.
#pragma once

#include <cstddef>
#include <vector>

namespace moeloom {

/// What is kept of a stretch of values; of those that are finite, but for the last one.
enum class Keep { kMean, kLeast, kLargest, kLast };

/// Of all values; NaN where none is finite.
double kept(const std::vector<double>& values, Keep keep);

/// A value for each of at most `most` stretches of neighbours, which are as long as each other but for one.
/// Columns of the same length have the same stretches.
std::vector<double> thinned(const std::vector<double>& values, std::size_t most, Keep keep);

/// To so many digits: the others cannot be seen and would be most of a page.
std::vector<double> rounded(std::vector<double> values, int digits);

}  // namespace moeloom
