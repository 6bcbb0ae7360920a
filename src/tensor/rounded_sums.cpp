#include "tensor/rounded_sums.hpp"

#include "moeloom/base/errors.hpp"

#include <array>
#include <bit>
#ifdef __AVX512F__
#include <immintrin.h>
#endif

namespace moeloom {
namespace {

#ifdef __AVX512F__

constexpr Index kLineNumbers = 32;

/// Whole lines from `target` on; how many numbers they were.
Index stream_lines(const float* sums, Index count, std::uint16_t* target) {
  alignas(64) std::array<std::uint16_t, kLineNumbers> line;  // a register, once the loop is vector code
  if (std::bit_cast<std::uintptr_t>(target) % sizeof(line) != 0) return 0;
  Index i = 0;
  for (; i + kLineNumbers <= count; i += kLineNumbers) {
    for (Index j = 0; j < kLineNumbers; ++j) line[at(j)] = float_to_bf16(sums[i + j]);
    _mm512_stream_si512(reinterpret_cast<__m512i*>(target + i), _mm512_load_si512(line.data()));
  }
  return i;
}

#else

Index stream_lines(const float*, Index, std::uint16_t*) {
  return 0;  // not measured
}

#endif

}  // namespace

void write_rounded_row(const float* sums, Index count, bool streams, std::uint16_t* target) {
  for (Index i = streams ? stream_lines(sums, count, target) : 0; i < count; ++i)
    target[i] = float_to_bf16(sums[i]);
}

void finish_rounded_streams() {
#ifdef __AVX512F__
  _mm_sfence();
#endif
}

void write_rounded(ConstMatrixView sums, Bf16View target, Write mode) {
  require(sums.rows == target.rows && sums.cols == target.cols, "sums are written where as many numbers are");
  for (Index i = 0; i < sums.rows; ++i) {
    const float* const from = sums.row(i);
    std::uint16_t* const to = target.row(i);
    if (mode == Write::kReplace) {
      write_rounded_row(from, sums.cols, false, to);
      continue;
    }
    for (Index j = 0; j < sums.cols; ++j) to[j] = float_to_bf16(bf16_to_float(to[j]) + from[j]);
  }
}

}  // namespace moeloom
