// A vector register as the compiler knows it: arithmetic by lane, loads and stores at any address. And the
// one place where a product and a sum are rounded together: everywhere else no compiler may fuse them, for
// one fuses what another does not, and bits would depend on who compiled them.
#pragma once

#include "moeloom/base/index.hpp"

#include <array>
#include <cstring>

#ifdef __FMA__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace moeloom {

#if defined(__AVX512F__)
inline constexpr Index kLanes = 16;
#elif defined(__AVX__)
inline constexpr Index kLanes = 8;
#else
inline constexpr Index kLanes = 4;
#endif
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

inline Lanes load(const float* source) {
  Lanes lanes;
  std::memcpy(&lanes, source, sizeof lanes);
  return lanes;
}
inline void store(Lanes lanes, float* target) {
  std::memcpy(target, &lanes, sizeof lanes);
}
/// Less zeros, which change no number: plus zeros would change -0.
inline Lanes broadcast(float number) {
  return number - Lanes{};
}

/// As if it were changed in its register, so that what is computed with it comes after, and once.
inline void keep_in_register([[maybe_unused]] Lanes& lanes) {
#if defined(__x86_64__)
  asm("" : "+v"(lanes));
#elif defined(__aarch64__)
  asm("" : "+w"(lanes));
#endif
}

/// Whether a product and a sum are one instruction.
#if defined(__FMA__) || defined(__aarch64__)
inline constexpr bool kFuses = true;
#else
inline constexpr bool kFuses = false;
#endif

/// a b + sum, rounded once where the processor does that by one instruction (x86 with FMA, AArch64), else
/// twice.
inline float multiply_add(float a, float b, float sum) {
  return kFuses ? __builtin_fmaf(a, b, sum) : a * b + sum;
}

/// The same in each lane.
inline Lanes multiply_add(Lanes a, Lanes b, Lanes sum) {
#if defined(__FMA__) && defined(__AVX512F__)
  return _mm512_fmadd_ps(a, b, sum);
#elif defined(__FMA__)
  return _mm256_fmadd_ps(a, b, sum);
#elif defined(__aarch64__)
  return vfmaq_f32(sum, a, b);
#else
  return a * b + sum;
#endif
}
inline Lanes multiply_add(float a, Lanes b, Lanes sum) {
  return multiply_add(broadcast(a), b, sum);
}

constexpr Index whole_vectors(Index count) {
  return ceil_div(count, kLanes) * kLanes;
}

}  // namespace moeloom
