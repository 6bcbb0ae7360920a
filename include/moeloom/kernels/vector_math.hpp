// exp, sigmoid and silu without branches, so that a loop over them becomes vector code.
//
// The library's std::exp cannot be vectorised without -ffast-math, which would also let sums be reordered.
// These are a few adds and products each, give the same bits in a vector lane and alone, and agree with the
// true value to about one unit in the last place.
#pragma once

#include <bit>
#include <cstdint>

namespace moeloom::vector_math {

/// e^x to 1 ulp where the result is normal; gradual underflow to 0 below -87.3, infinity above 88.72; NaN
/// stays NaN.
///
/// x = n ln 2 + r with ln 2 in two parts (Cody & Waite 1980), e^x = 2^n e^r. e^r = 1 + r + r^2 P(r), P of
/// degree 4 by Remez exchange for the relative error on |r| <= ln(2)/2: 3.1e-9, a twentieth of an ulp.
inline float exp(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.63p-1f;  // nine bits: n times it is exact
  constexpr float kLn2Low = -0x1.bd0106p-13f;
  constexpr float kRounder =
      0x1.8p+23f;  // adding it leaves no fraction bits, so the sum is rounded to an integer
  // Comparisons are false for NaN, which therefore passes both.
  x = x < -104.0f ? -104.0f : x;
  x = x > 88.8f ? 88.8f : x;
  const float shifted = x * kLog2E + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;

  float p = 0x1.6a2352p-10f;
  p = p * r + 0x1.123a6cp-7f;
  p = p * r + 0x1.5558f4p-5f;
  p = p * r + 0x1.555490p-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = (p * r) * r + r + 1.0f;

  // 2^n as two factors: n reaches -150 and 128, beyond the exponents of one float.
  const std::int32_t exponent = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRounder);
  const std::int32_t half = exponent >> 1;
  const auto power_of_two = [](std::int32_t e) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
  };
  return p * power_of_two(half) * power_of_two(exponent - half);
}

/// The logistic function and one minus it, each to a few ulps however close it is to 0.
struct Sigmoid {
  float value;
  float complement;
};
inline Sigmoid sigmoid(float x) {
  const float magnitude = x < 0.0f ? -x : x;
  const float decay = exp(-magnitude);  // at most 1: nothing here overflows
  const float larger = 1.0f / (1.0f + decay);
  const float smaller = decay * larger;
  return x < 0.0f ? Sigmoid{smaller, larger} : Sigmoid{larger, smaller};
}

/// x sigmoid(x).
inline float silu(float x) {
  return x * sigmoid(x).value;
}

/// silu and its derivative sigmoid(x) (1 + x (1 - sigmoid(x))).
struct SiluSlope {
  float value;
  float slope;
};
inline SiluSlope silu_slope(float x) {
  const Sigmoid s = sigmoid(x);
  return {x * s.value, s.value * (1.0f + x * s.complement)};
}

}  // namespace moeloom::vector_math
