// How many rows of an elementwise pass make one task for a thread.
#pragma once

#include "moeloom/base/index.hpp"

#include <algorithm>

namespace moeloom {

/// 128 KiB of a row-major matrix: enough to pay for handing it out, few enough to share small activations.
inline Index rows_per_task(Index cols) {
  constexpr Index kFloatsPerTask = 32 * 1024;
  return std::max<Index>(1, kFloatsPerTask / std::max<Index>(1, cols));
}

}  // namespace moeloom
