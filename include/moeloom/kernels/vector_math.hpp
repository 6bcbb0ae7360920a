// exp, sigmoid and silu without branches, so that a loop over them becomes vector code.
//
// The library's std::exp cannot be vectorised without -ffast-math, which would also let sums be reordered.
// These are a few adds and products each, give the same bits in a vector lane and alone, and agree with the
// true value to about one unit in the last place.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace moeloom::vector_math {

namespace detail {

/// e^x = mantissa 2^exponent; nonsense beyond |x| = 128.
struct Split {
  float mantissa;
  std::int32_t exponent;
};

/// x = n ln 2 + r with ln 2 in two parts (Cody & Waite 1980), e^r = 1 + r + r^2 P(r), P of degree 4 by Remez
/// exchange for the relative error on |r| <= ln(2)/2: 3.1e-9, a twentieth of an ulp.
inline Split split_exp(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.63p-1f;  // nine bits: n times it is exact
  constexpr float kLn2Low = -0x1.bd0106p-13f;
  constexpr float kRounder = 0x1.8p+23f;  // a sum with it has no fraction bits: it is rounded to an integer
  const float shifted = x * kLog2E + kRounder;
  const float n = shifted - kRounder;
  const float r = (x - n * kLn2High) - n * kLn2Low;

  float p = 0x1.6a2352p-10f;
  p = p * r + 0x1.123a6cp-7f;
  p = p * r + 0x1.5558f4p-5f;
  p = p * r + 0x1.555490p-3f;
  p = p * r + 0x1.fffffcp-2f;
  p = (p * r) * r + r + 1.0f;
  return {p, std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(kRounder)};
}

/// e in [-126, 127].
inline float power_of_two(std::int32_t e) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(e + 127) << 23);
}

constexpr float kZeroBelow = -104.0f;  // e^-104 is less than half of the smallest subnormal number
constexpr float kInfinityAbove = 88.8f;

}  // namespace detail

// Results beyond the range are chosen last: a choice made first would be copied by the compiler into every
// later step. Comparisons are false for NaN, which therefore passes.

/// e^x to 1 ulp where the result is normal; gradual underflow to 0 below -87.3, infinity above 88.72; NaN
/// stays NaN.
inline float exp(float x) {
  const detail::Split split = detail::split_exp(x);
  // Two factors: the exponent reaches -150 and 128, beyond those of one float.
  const std::int32_t half = split.exponent >> 1;
  const float power =
      split.mantissa * detail::power_of_two(half) * detail::power_of_two(split.exponent - half);
  const float above_zero = x < detail::kZeroBelow ? 0.0f : power;
  return x > detail::kInfinityAbove ? std::numeric_limits<float>::infinity() : above_zero;
}

/// The same bits for x <= 0 in fewer steps, as softmax and the sigmoid need it.
inline float exp_of_nonpositive(float x) {
  const detail::Split split = detail::split_exp(x);
  const float power = split.mantissa * detail::power_of_two(split.exponent + 24) * 0x1p-24f;
  return x < detail::kZeroBelow ? 0.0f : power;
}

/// The logistic function and one minus it, each to a few ulps however close it is to 0.
struct Sigmoid {
  float value;
  float complement;
};
inline Sigmoid sigmoid(float x) {
  const float decay = exp_of_nonpositive(-std::fabs(x));  // at most 1: nothing here overflows
  const float larger = 1.0f / (1.0f + decay);
  return {(x < 0.0f ? decay : 1.0f) * larger, (x < 0.0f ? 1.0f : decay) * larger};
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
