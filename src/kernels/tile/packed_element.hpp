// What a packed product multiplies: fp32 numbers, or bf16 pairs summed in fp32.
//
// Both are packed in words of 32 bits: one fp32 number, or the bf16 numbers of depth k (lower half) and
// k + 1, the depth padded with a zero where it is odd. So panels, strips, passes and tiles are the same for
// both, and bf16 has half as many words. Words lie in memory of floats and are never computed with as such.
#pragma once

#include "moeloom/tensor/rows.hpp"
#include "tensor/lanes.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "tile/transpose.hpp"
#if defined(__FMA__) || defined(__F16C__)
#include <immintrin.h>
#endif

namespace moeloom::packed {

inline Eight load_words(const std::uint16_t* pairs) {
  Eight words;
  std::memcpy(&words, pairs, sizeof words);
  return words;
}

/// Eight bf16 numbers as floats.
inline Eight widened8(const std::uint16_t* numbers) {
  typedef std::uint16_t Halves __attribute__((vector_size(16)));
  typedef std::uint32_t Words __attribute__((vector_size(32)));
  Halves halves;
  std::memcpy(&halves, numbers, sizeof halves);
  return std::bit_cast<Eight>(__builtin_convertvector(halves, Words) << 16);
}

/// Eight F16 numbers as floats, with the bits of f16_to_float().
inline Eight widened8(const F16* numbers) {
#ifdef __F16C__
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(numbers)));
#else
  Eight wide;
  for (int i = 0; i < 8; ++i) wide[i] = as_float(numbers[i]);
  return wide;
#endif
}

/// kLanes of them.
inline Lanes widened_lanes(const F16* numbers) {
#if defined(__AVX512F__)
  // By a mask of ones: the other name is taken for a use of what is not initialised.
  return _mm512_maskz_cvtph_ps(0xFFFF, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(numbers)));
#elif defined(__AVX__)
  return std::bit_cast<Lanes>(widened8(numbers));
#else
  Lanes lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = as_float(numbers[i]);
  return lanes;
#endif
}

#ifdef __AVX512F__

/// Whether the CPU rounds to bf16 by itself; else the same is made of other instructions, slowly.
inline bool rounds_to_bf16() {
  return __builtin_cpu_supports("avx512bf16");
}
/// Its instructions, for where rounds_to_bf16() alone. They are spelled, so that the compiler need not be
/// told of them and uses them nowhere else; volatile, so that it does not move them ahead of the question.
inline __m256i rounded_to_bf16(__m512 numbers) {
  __m256i rounded;
  asm volatile("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(numbers));
  return rounded;
}
inline __m128i rounded_to_bf16(__m256 numbers) {
  __m128i rounded;
  asm volatile("vcvtneps2bf16 %1, %0" : "=v"(rounded) : "v"(numbers));
  return rounded;
}

#endif

/// Element types say how words are made of numbers and multiplied. `next` is the row below, one deeper.
/// Number is what rows may consist of: float, and what is Element already. Masters may be F16 besides.
struct Fp32 {
  static constexpr DType kType = DType::kF32;
  static constexpr Index kNumbers = 1;  // in a word
  template <typename Number>
  static constexpr bool reads = std::is_same_v<Number, float>;

  using Factor = float;
  static Factor load_factor(const float* word) { return *word; }
  static Lanes multiply_add(Factor a, Lanes b, Lanes sum) { return moeloom::multiply_add(a, b, sum); }

  static float word(float number, float) { return number; }
  /// Eight words of a row whose numbers follow each other in depth.
  static Eight words_along(const float* row) { return load8(row); }
  static Eight words_along(const std::uint16_t* row) { return widened8(row); }
  static Eight words_along(const F16* row) { return widened8(row); }
  static Eight words_down(const float* row, const float*) { return load8(row); }
  static Eight words_down(const std::uint16_t* row, const std::uint16_t*) { return widened8(row); }
  static Eight words_down(const F16* row, const F16*) { return widened8(row); }
  /// `cols` words side by side: written to `words`, unless they lie somewhere already. No `next` at the end.
  static const float* pack_down(const float* row, const float*, Index, float*) { return row; }
};

struct Bf16 {
  using EightBits = std::uint32_t __attribute__((vector_size(sizeof(Eight))));
  static constexpr DType kType = DType::kBF16;
  static constexpr Index kNumbers = 2;
  template <typename Number>
  static constexpr bool reads = std::is_same_v<Number, float> || std::is_same_v<Number, std::uint16_t>;

  typedef std::uint32_t Factor __attribute__((vector_size(sizeof(Lanes))));
  static Factor load_factor(const float* word) { return Factor{} + std::bit_cast<std::uint32_t>(*word); }
  /// The product of the upper halves is added first, as the instruction of tile/pair_tile.cpp does.
  static Lanes multiply_add(Factor a, Lanes b, Lanes sum) {
    const auto pairs = std::bit_cast<Factor>(b);
    sum = moeloom::multiply_add(std::bit_cast<Lanes>(a & kUpper), std::bit_cast<Lanes>(pairs & kUpper), sum);
    return moeloom::multiply_add(std::bit_cast<Lanes>(a << 16), std::bit_cast<Lanes>(pairs << 16), sum);
  }

  static float word(float number, float next) { return word(float_to_bf16(number), float_to_bf16(next)); }
  static float word(std::uint16_t number, std::uint16_t next) {
    return std::bit_cast<float>(std::uint32_t{next} << 16 | number);
  }
  static Eight words_along(const float* row) {
#ifdef __AVX512F__
    if (rounds_to_bf16()) return std::bit_cast<Eight>(rounded_to_bf16(_mm512_loadu_ps(row)));
#endif
    return words_of_row(load8(row), load8(row + 8));
  }
  static Eight words_along(const F16* row) {
#ifdef __AVX512F__
    if (rounds_to_bf16()) return std::bit_cast<Eight>(rounded_to_bf16(widened_lanes(row)));
#endif
    return words_of_row(widened8(row), widened8(row + 8));
  }
  static Eight words_along(const std::uint16_t* row) {
    return load_words(row);
  }
  static Eight words_down(const float* row, const float* next) {
    return words_of(load8(row), load8(next));
  }
  static Eight words_down(const std::uint16_t* row, const std::uint16_t* next) {
    const auto upper = std::bit_cast<EightBits>(widened8(next));
    return std::bit_cast<Eight>(upper | std::bit_cast<EightBits>(widened8(row)) >> 16);
  }
  static Eight words_down(const F16* row, const F16* next) {
    return words_of(widened8(row), widened8(next));
  }
  static const float* pack_down(const float* row, const float* next, Index cols, float* words) {
    Index j = 0;
    for (; j + 8 <= cols; j += 8)
      store8(words_of(load8(row + j), next == nullptr ? Eight{} : load8(next + j)), words + j);
    for (; j < cols; ++j) words[j] = word(row[j], next == nullptr ? 0.0f : next[j]);
    return words;
  }
  static const float* pack_down(const std::uint16_t* row, const std::uint16_t* next, Index cols,
                                float* words) {
    if (next == nullptr)
      for (Index j = 0; j < cols; ++j) words[j] = word(row[j], std::uint16_t{0});
    else
      for (Index j = 0; j < cols; ++j) words[j] = word(row[j], next[j]);
    return words;
  }

 private:
  static constexpr std::uint32_t kUpper = 0xFFFF0000;

  /// float_to_bf16 in the upper half of each lane; the lower is left over.
  static EightBits rounded(Eight numbers) {
    const auto bits = std::bit_cast<EightBits>(numbers);
    return numbers != numbers ? bits | 0x400000 : bits + 0x7FFF + (bits >> 16 & 1);
  }
  static Eight words_of(Eight numbers, Eight next) {
#ifdef __AVX512F__
    const auto halves = [](Eight floats) {
      return std::bit_cast<EightBits>(_mm256_cvtepu16_epi32(rounded_to_bf16(static_cast<__m256>(floats))));
    };
    if (rounds_to_bf16()) return std::bit_cast<Eight>(halves(next) << 16 | halves(numbers));
#endif
    return std::bit_cast<Eight>((rounded(next) & kUpper) | rounded(numbers) >> 16);
  }
  /// Of sixteen numbers that follow each other in depth.
  static Eight words_of_row(Eight low, Eight high) {
    return words_of(__builtin_shufflevector(low, high, 0, 2, 4, 6, 8, 10, 12, 14),
                    __builtin_shufflevector(low, high, 1, 3, 5, 7, 9, 11, 13, 15));
  }
};

}  // namespace moeloom::packed
