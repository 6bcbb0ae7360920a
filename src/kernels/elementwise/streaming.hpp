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

template <typename Number>
inline constexpr Index kLine = 64 / static_cast<Index>(sizeof(Number));  // numbers of a cache line

/// Whether a result, written in groups of so many columns, is larger than the caches it could wait in and can
/// be written in whole lines.
template <typename Number>
bool pays(BasicView<Number> result, Index group) {
  constexpr Index kCachedBytes = 32 * 1024 * 1024;
  constexpr auto kBytes = static_cast<Index>(sizeof(Number));
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(result.data) % 16 == 0 && result.stride * kBytes % 16 == 0;
  return result.rows * result.cols * kBytes >= kCachedBytes && group % kLine<Number> == 0 && aligned;
}

/// One line to an address that is a multiple of 16.
template <typename Number>
void write_line(const Number* line, Number* to) {
#ifdef __SSE2__
  for (Index part = 0; part < 4; ++part)
    _mm_stream_si128(reinterpret_cast<__m128i*>(to) + part,
                     _mm_load_si128(reinterpret_cast<const __m128i*>(line) + part));
#else
  std::copy_n(line, kLine<Number>, to);
#endif
}

/// Before another thread may read what was written.
inline void finish() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

}  // namespace moeloom::streaming
