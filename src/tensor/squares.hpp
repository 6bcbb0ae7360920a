// Sums of squares, of which norms of gradients are made.
#pragma once

#include <cstdint>
#include <span>

namespace moeloom {

/// In double, in a fixed number of partial sums: the bits depend on the numbers and their places alone. One
/// thread.
double sum_of_squares(std::span<const float> values);
/// Of numbers in bf16.
double sum_of_squares(std::span<const std::uint16_t> halves);

}  // namespace moeloom
