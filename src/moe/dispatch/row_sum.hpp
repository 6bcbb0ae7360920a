// The one sum of combine: rows of a token, in slot order.
#pragma once

#include "moeloom/tensor/gemm.hpp"
#include "tensor/eight.hpp"

#include <algorithm>

namespace moeloom {

/// out [8 kSums] = or += row_of(0) + row_of(1) + ... at columns from `begin` on, all slots' before the next
/// columns, so that each row is read as one stream. In lanes by name: the compiler keeps an array of float
/// sums in memory, which takes three times as long.
template <Index kSums, typename RowOf>
void sum_lanes(Index count, Index begin, RowOf row_of, float* out, Write mode) {
  Eight sums[kSums];
  const float* row = row_of(Index{0}) + begin;
  for (Index i = 0; i < kSums; ++i) sums[i] = load8(row + i * 8);
  for (Index k = 1; k < count; ++k) {
    row = row_of(k) + begin;
    for (Index i = 0; i < kSums; ++i) sums[i] += load8(row + i * 8);
  }
  if (mode == Write::kAdd)
    for (Index i = 0; i < kSums; ++i) sums[i] += load8(out + i * 8);
  for (Index i = 0; i < kSums; ++i) store8(sums[i], out + i * 8);
}

/// out [cols] = or += row_of(0) + row_of(1) + ... + row_of(count - 1), in this order; 0 of no row.
template <typename RowOf>
void sum_rows(Index count, Index cols, RowOf row_of, float* out, Write mode) {
  if (count == 0) {
    if (mode == Write::kReplace) std::fill_n(out, cols, 0.0f);
    return;
  }
  Index j = 0;
  constexpr Index kRegisters = 8;  // of sums at once, beside those that rows are loaded to
  for (; j + 8 * kRegisters <= cols; j += 8 * kRegisters)
    sum_lanes<kRegisters>(count, j, row_of, out + j, mode);
  for (; j + 8 <= cols; j += 8) sum_lanes<1>(count, j, row_of, out + j, mode);
  for (; j < cols; ++j) {
    float sum = row_of(Index{0})[j];
    for (Index k = 1; k < count; ++k) sum += row_of(k)[j];
    out[j] = mode == Write::kAdd ? out[j] + sum : sum;
  }
}

}  // namespace moeloom
