// The one sum of combine: rows of a token, in slot order.
#pragma once

#include "moeloom/tensor/gemm.hpp"

#include <algorithm>

namespace moeloom {

/// Columns that are summed at once: all slots' before the next ones, so that the sums stay in registers and
/// each row is read as one stream. Twice as fast as slot after slot over a stretch in L1 (K = 8, rows of 8
/// KiB).
inline constexpr Index kSummedAtOnce = 32;

/// sum [n] = row_of(0) + row_of(1) + ... at columns from `begin` on.
template <typename RowOf>
void sum_columns(Index count, Index begin, Index n, RowOf row_of, float* sum) {
  const float* first = row_of(Index{0}) + begin;
  for (Index j = 0; j < n; ++j) sum[j] = first[j];
  for (Index k = 1; k < count; ++k) {
    const float* row = row_of(k) + begin;
    for (Index j = 0; j < n; ++j) sum[j] += row[j];
  }
}

/// out [cols] = or += row_of(0) + row_of(1) + ... + row_of(count - 1), in this order.
template <typename RowOf>
void sum_rows(Index count, Index cols, RowOf row_of, float* out, Write mode) {
  for (Index begin = 0; begin < cols; begin += kSummedAtOnce) {
    float sum[kSummedAtOnce];
    const Index n = std::min(kSummedAtOnce, cols - begin);
    if (n == kSummedAtOnce)
      sum_columns(count, begin, kSummedAtOnce, row_of, sum);
    else
      sum_columns(count, begin, n, row_of, sum);
    if (mode == Write::kAdd)
      for (Index j = 0; j < n; ++j) out[begin + j] += sum[j];
    else
      std::copy_n(sum, n, out + begin);
  }
}

}  // namespace moeloom
