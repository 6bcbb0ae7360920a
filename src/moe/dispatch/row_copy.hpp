// Copies of whole rows, through the cache or around it.
//
// An ordinary store first reads the line that it overwrites. Rows that leave the cache before grouped matmul
// comes to them are cheaper written around it: of the traffic of a copy, a third. Smaller exchanges stay in
// cache.
#pragma once

#include "moeloom/base/index.hpp"
#include "tensor/eight.hpp"

#include <cstdint>
#include <cstring>

#ifdef __SSE2__
#include <immintrin.h>
#endif

namespace moeloom {

/// Of rows [rows, cols] that start at 64-byte addresses if cols is a multiple of 16.
inline bool leaves_cache(Index rows, Index cols) {
  constexpr Index kCachedFloats = 4 * 1024 * 1024;
  return rows * cols >= kCachedFloats && cols % 16 == 0;
}

/// In lanes: memcpy takes a row of 2 KiB or more for a string, which some processors copy a third slower than
/// registers.
inline void copy_row(const float* from, Index cols, float* to) {
  constexpr Index kAtOnce = 4 * 8;
  Index j = 0;
  for (; j + kAtOnce <= cols; j += kAtOnce) {
    Eight lanes[4];
    for (Index i = 0; i < 4; ++i) lanes[i] = load8(from + j + i * 8);
    for (Index i = 0; i < 4; ++i) store8(lanes[i], to + j + i * 8);
  }
  std::memcpy(to + j, from + j, at(cols - j) * sizeof(float));
}

/// `to` at a 64-byte address, cols a multiple of 16. finish_rows() before another thread may read it.
inline void copy_row_around_cache(const float* from, Index cols, float* to) {
#ifdef __SSE2__
  for (Index j = 0; j < cols; j += 4) _mm_stream_ps(to + j, _mm_loadu_ps(from + j));
#else
  copy_row(from, cols, to);
#endif
}

inline void finish_rows() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

/// Writes rows of one exchange by the copy that suits its size.
class RowWriter {
 public:
  /// `rows` [rows, cols] are written in all, each to an address that suits leaves_cache().
  RowWriter(Index rows, Index cols) : cols_(cols), around_(leaves_cache(rows, cols)) {}
  void operator()(const float* from, float* to) const {
    if (around_)
      copy_row_around_cache(from, cols_, to);
    else
      copy_row(from, cols_, to);
  }
  /// After the last row of a thread, before another one may read it.
  void finish() const {
    if (around_) finish_rows();
  }

 private:
  Index cols_;
  bool around_;
};

}  // namespace moeloom
