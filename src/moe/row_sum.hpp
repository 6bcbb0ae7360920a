// The one sum of combine: rows of a token, in slot order.
#pragma once

#include "moeloom/tensor/gemm.hpp"

#include <algorithm>
#include <span>

namespace moeloom {

/// out [cols] = or += rows[0] + rows[1] + ... Slot after slot over a stretch that stays in registers, so that
/// the loop over columns is vector code and the order of each sum is that of the slots.
inline void sum_rows(std::span<const float* const> rows, Index cols, float* out, Write mode) {
  constexpr Index kStretch = 64;
  float sum[kStretch];
  for (Index begin = 0; begin < cols; begin += kStretch) {
    const Index n = std::min(kStretch, cols - begin);
    std::copy_n(rows.front() + begin, n, sum);
    for (const float* row : rows.subspan(1))
      for (Index j = 0; j < n; ++j) sum[j] += row[begin + j];
    if (mode == Write::kAdd)
      for (Index j = 0; j < n; ++j) out[begin + j] += sum[j];
    else
      std::copy_n(sum, n, out + begin);
  }
}

}  // namespace moeloom
