// The one sum of combine: rows of a token, in slot order.
#pragma once

#include "moeloom/tensor/eight.hpp"
#include "moeloom/tensor/gemm.hpp"

namespace moeloom {

/// Columns that are summed at once: all slots' before the next ones, so that the sums stay in registers and
/// each row is read as one stream.
inline constexpr Index kSummedAtOnce = 64;

/// out [kSummedAtOnce] = or += row_of(0) + row_of(1) + ... at columns from `begin` on. In lanes by name: the
/// compiler keeps an array of float sums in memory, which takes three times as long.
template <typename RowOf>
void sum_lanes(Index count, Index begin, RowOf row_of, float* out, Write mode) {
  constexpr Index kSums = kSummedAtOnce / 8;
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

/// out [cols] = or += row_of(0) + row_of(1) + ... + row_of(count - 1), in this order.
template <typename RowOf>
void sum_rows(Index count, Index cols, RowOf row_of, float* out, Write mode) {
  Index j = 0;
  for (; j + kSummedAtOnce <= cols; j += kSummedAtOnce) sum_lanes(count, j, row_of, out + j, mode);
  for (; j < cols; ++j) {
    float sum = row_of(Index{0})[j];
    for (Index k = 1; k < count; ++k) sum += row_of(k)[j];
    out[j] = mode == Write::kAdd ? out[j] + sum : sum;
  }
}

}  // namespace moeloom
