// The one sum of combine: rows of a token, in slot order.
#pragma once

#include "moeloom/tensor/gemm.hpp"

#include <algorithm>

namespace moeloom {

/// out [cols] = or += row_of(0) + row_of(1) + ... + row_of(count - 1). Slot after slot over a stretch that
/// stays in the nearest cache, so that the loop over columns is vector code and the order of each sum is the
/// slots'.
template <typename RowOf>
void sum_rows(Index count, Index cols, RowOf row_of, float* out, Write mode) {
  constexpr Index kStretch = 512;
  float sum[kStretch];
  for (Index begin = 0; begin < cols; begin += kStretch) {
    const Index n = std::min(kStretch, cols - begin);
    std::copy_n(row_of(Index{0}) + begin, n, sum);
    for (Index k = 1; k < count; ++k) {
      const float* row = row_of(k) + begin;
      for (Index j = 0; j < n; ++j) sum[j] += row[j];
    }
    if (mode == Write::kAdd)
      for (Index j = 0; j < n; ++j) out[begin + j] += sum[j];
    else
      std::copy_n(sum, n, out + begin);
  }
}

}  // namespace moeloom
