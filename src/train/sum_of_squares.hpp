// Of a gradient, for its norm, at the speed of memory. Spelled in vectors: of an array of sums GCC 12 makes
// code that takes twice as long.
#pragma once

#include "moeloom/tensor/rows.hpp"
#include "tensor/eight.hpp"

#include <array>
#include <cstdint>
#include <span>

namespace moeloom {

namespace detail {

using EightDoubles = double __attribute__((vector_size(64)));

/// Adds the squares of eight numbers; those of floats are exact.
inline void add_squares(const float* numbers, EightDoubles& sums) {
  const auto wide = __builtin_convertvector(load8(numbers), EightDoubles);
  sums += wide * wide;
}
inline void add_squares(const std::uint16_t* halves, EightDoubles& sums) {
  std::array<float, 8> numbers;
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = as_float(halves[i]);
  add_squares(numbers.data(), sums);
}

}  // namespace detail

/// In eight fixed lanes: the bits depend on the numbers alone.
template <typename Number>
double sum_of_squares(std::span<const Number> values) {
  constexpr std::size_t kAhead = 512 / sizeof(Number);
  detail::EightDoubles lanes{};
  const std::size_t whole = values.size() / 8 * 8;
  for (std::size_t i = 0; i < whole; i += 8) {
    __builtin_prefetch(values.data() + i + kAhead);
    detail::add_squares(values.data() + i, lanes);
  }
  for (std::size_t i = whole; i < values.size(); ++i) {
    const double value = as_float(values[i]);
    lanes[i - whole] += value * value;
  }
  double sum = 0;
  for (std::size_t lane = 0; lane < 8; ++lane) sum += lanes[lane];
  return sum;
}

}  // namespace moeloom
