// Eight by eight numbers transposed in registers, and stores that do not read what they overwrite.
#pragma once

#include "moeloom/base/index.hpp"
#include "tensor/eight.hpp"

#ifdef __AVX__
#include <immintrin.h>
#endif

namespace moeloom {

inline constexpr Index kTransposed = 8;

/// `to` is aligned to 32 bytes. Other threads see it after finish_streaming().
inline void stream(Eight lanes, float* to) {
#ifdef __AVX__
  _mm256_stream_ps(to, static_cast<__m256>(lanes));
#else
  store8(lanes, to);
#endif
}

inline void finish_streaming() {
#ifdef __AVX__
  _mm_sfence();
#endif
}

using EightRows = Eight[8];

/// In place: lane j of row i becomes lane i of row j.
inline void transpose(EightRows& r) {
  EightRows pairs, fours;
  for (Index i = 0; i < 4; ++i) {
    pairs[2 * i] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    pairs[2 * i + 1] = __builtin_shufflevector(r[2 * i], r[2 * i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (Index half = 0; half < 8; half += 4)
    for (Index i = 0; i < 2; ++i) {
      const Eight low = pairs[half + i], high = pairs[half + 2 + i];
      fours[half + 2 * i] = __builtin_shufflevector(low, high, 0, 1, 8, 9, 4, 5, 12, 13);
      fours[half + 2 * i + 1] = __builtin_shufflevector(low, high, 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (Index i = 0; i < 4; ++i) {
    r[i] = __builtin_shufflevector(fours[i], fours[4 + i], 0, 1, 2, 3, 8, 9, 10, 11);
    r[4 + i] = __builtin_shufflevector(fours[i], fours[4 + i], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

}  // namespace moeloom
