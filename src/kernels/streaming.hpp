// Results written around the cache, where they would leave it before anyone reads them.
//
// An ordinary store first reads the line that it is going to overwrite: a third of a copy's traffic. A
// streaming store does not, but what it wrote must come back from memory, so smaller activations, which the
// next matmul finds in the cache, are stored ordinarily.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <algorithm>
#include <cstdint>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace moeloom::streaming {

inline constexpr Index kLine = 16;  // floats of a cache line

/// Whether a result, written in groups of so many columns, is larger than the caches it could wait in and can
/// be written in whole lines.
inline bool pays(ConstMatrixView result, Index group) {
  constexpr Index kCachedFloats = 8 * 1024 * 1024;
  const bool aligned = reinterpret_cast<std::uintptr_t>(result.data) % 16 == 0 && result.stride % 4 == 0;
  return result.rows * result.cols >= kCachedFloats && group % kLine == 0 && aligned;
}

/// One line to an address that is a multiple of 16.
inline void write_line(const float* line, float* to) {
#ifdef __SSE2__
  for (Index j = 0; j < kLine; j += 4) _mm_stream_ps(to + j, _mm_load_ps(line + j));
#else
  std::copy_n(line, kLine, to);
#endif
}

/// Before another thread may read what was written.
inline void finish() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace moeloom::streaming
