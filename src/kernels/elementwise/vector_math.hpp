// exp, sigmoid, softplus, silu and gelu without branches, so that a loop over them becomes vector code.
//
// The library's std::exp cannot be vectorised without -ffast-math, which would also let sums be reordered.
// These are a few adds and products each, give the same bits in a vector lane and alone, and agree with the
// true value to about one unit in the last place.
#pragma once

#include "tensor/lanes.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace moeloom::vector_math {

namespace detail {

constexpr float kRounder = 0x1.8p+23f;  // a sum with it has no fraction bits: it is rounded to an integer

}  // namespace detail

/// e^x = mantissa 2^exponent(); nonsense beyond |x| = 128, of unsigned numbers, which may wrap.
struct Split {
  float mantissa;
  // Of a rounder + the exponent: in its lowest nine bits the exponent + kOffset alone.
  std::uint32_t sum_bits;
  std::uint32_t exponent() const { return sum_bits - std::bit_cast<std::uint32_t>(detail::kRounder); }
};

/// x = n ln 2 + r with ln 2 in two parts (Cody & Waite 1980), e^r = 1 + r + r^2 P(r), P of degree 4 by Remez
/// exchange for the relative error on |r| <= ln(2)/2: 3.1e-9, a twentieth of an ulp.
template <int kOffset = 0>
inline Split split_exp(float x) {
  constexpr float kRounder = detail::kRounder + kOffset;
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.63p-1f;  // nine bits: n times it is exact
  constexpr float kLn2Low = -0x1.bd0106p-13f;
  const float shifted = multiply_add(x, kLog2E, kRounder);
  const float n = shifted - kRounder;
  const float r = multiply_add(-n, kLn2Low, multiply_add(-n, kLn2High, x));

  float p = 0x1.6a2352p-10f;
  p = multiply_add(p, r, 0x1.123a6cp-7f);
  p = multiply_add(p, r, 0x1.5558f4p-5f);
  p = multiply_add(p, r, 0x1.555490p-3f);
  p = multiply_add(p, r, 0x1.fffffcp-2f);
  p = multiply_add(p * r, r, r) + 1.0f;
  return {p, std::bit_cast<std::uint32_t>(shifted)};
}

namespace detail {

/// e in [-126, 127].
inline float power_of_two(std::uint32_t e) {
  return std::bit_cast<float>((e + 127) << 23);
}

constexpr float kZeroBelow = -104.0f;  // e^-104 is less than half of the smallest subnormal number
constexpr float kInfinityAbove = 88.8f;

}  // namespace detail

// Results beyond the range are chosen last: a choice made first would be copied by the compiler into every
// later step. Comparisons are false for NaN, which therefore passes.

/// e^x to 1 ulp where the result is normal; gradual underflow to 0 below -87.3, infinity above 88.72; NaN
/// stays NaN.
inline float exp(float x) {
  const Split split = split_exp(x);
  // Two factors: the exponent reaches -150 and 128, beyond those of one float.
  const auto half = static_cast<std::uint32_t>(static_cast<std::int32_t>(split.exponent()) >> 1);
  const float power =
      split.mantissa * detail::power_of_two(half) * detail::power_of_two(split.exponent() - half);
  const float above_zero = x < detail::kZeroBelow ? 0.0f : power;
  return x > detail::kInfinityAbove ? std::numeric_limits<float>::infinity() : above_zero;
}

/// The same bits for x <= 0 in fewer steps, as softmax and the sigmoid need it.
inline float exp_of_nonpositive(float x) {
  const Split split = split_exp(x);
  const float power = split.mantissa * detail::power_of_two(split.exponent() + 24) * 0x1p-24f;
  return x < detail::kZeroBelow ? 0.0f : power;
}

/// log x to 2 ulps or 1e-7, for normal positive x; below the smallest normal number, where it is finite too,
/// it is what multiplied with x is about 0. Of NaN it is nonsense. Cephes' logf (Moshier 1992): x = m 2^e
/// with m in [sqrt(1/2), sqrt(2)), and a polynomial of degree 8 in m - 1.
inline float log_of_normal(float x) {
  // The exponent field counts from sqrt(1/2) on, so that the mantissa's range lies around 1.
  constexpr std::int32_t kRootHalf = 0x3f3504f3;
  const std::int32_t from_root = std::bit_cast<std::int32_t>(x) - kRootHalf;
  const auto e = static_cast<float>(from_root >> 23);
  const float m = std::bit_cast<float>((from_root & 0x7fffff) + kRootHalf) - 1.0f;
  float p = 7.0376836292e-2f;
  p = multiply_add(p, m, -1.1514610310e-1f);
  p = multiply_add(p, m, 1.1676998740e-1f);
  p = multiply_add(p, m, -1.2420140846e-1f);
  p = multiply_add(p, m, 1.4249322787e-1f);
  p = multiply_add(p, m, -1.6668057665e-1f);
  p = multiply_add(p, m, 2.0000714765e-1f);
  p = multiply_add(p, m, -2.4999993993e-1f);
  p = multiply_add(p, m, 3.3333331174e-1f);
  const float square = m * m;
  // ln 2 in two parts: e times the first is exact.
  const float low = multiply_add(p * m, square, -2.12194440e-4f * e);
  return multiply_add(0.693359375f, e, multiply_add(-0.5f, square, low) + m);
}

namespace detail {

// The logistic function is 1 / (1 + e^-x), with both ones and the power times 2^-24: so a single factor of
// the power reaches from e^104, whose inverse is rounded to 0, to e^-70, which is nothing beside 1.
constexpr int kScaleBits = 24;
constexpr float kScale = 0x1p-24f;

/// x kept in [-104, 70]; of NaN one of both. By the order of bits: negative numbers are below others as
/// signed integers and above them, the larger the further, as unsigned ones. The compiler makes two minima of
/// it, where it would copy choices between floats into every later step.
inline float within_scale(float x) {
  const std::int32_t below = std::min(std::bit_cast<std::int32_t>(x), std::bit_cast<std::int32_t>(70.0f));
  return std::bit_cast<float>(
      std::min(static_cast<std::uint32_t>(below), std::bit_cast<std::uint32_t>(kZeroBelow)));
}

/// 2^-24 e^-x for -104 <= x <= 70: the sum's lowest bits are the factor's exponent as a float has it.
inline float scaled_decay(float x) {
  const Split split = split_exp<127 - kScaleBits>(-x);
  return split.mantissa * std::bit_cast<float>(split.sum_bits << 23);
}

}  // namespace detail

/// The logistic function and one minus it, to a few ulps however close the first is to 0; the second stays at
/// e^-70 beyond 70, and an x that it is multiplied with must stay there, too. Of NaN they are numbers: what
/// they are multiplied with passes it.
struct Sigmoid {
  float value;
  float complement;
};
inline Sigmoid sigmoid(float x) {
  const float decay = detail::scaled_decay(detail::within_scale(x));
  const float inverse = 1.0f / (detail::kScale + decay);
  return {detail::kScale * inverse, decay * inverse};
}

/// log(1 + e^x), to a few ulps wherever it is a normal number: of a rounded sum 1 + u the logarithm is taken
/// with the sum's own u, and multiplied by what that lacks (Kahan).
inline float softplus(float x) {
  const float u = exp_of_nonpositive(-std::fabs(x));
  const float sum = 1.0f + u;
  const float in_sum = sum - 1.0f;
  const float log = in_sum == 0.0f ? u : log_of_normal(sum) * (u / in_sum);
  return std::max(x, 0.0f) + log;
}

/// x sigmoid(x).
inline float silu(float x) {
  return x * sigmoid(x).value;
}

/// To 2 ulps; of NaN it is NaN. Cephes' tanhf (Moshier 1992): a polynomial below 0.625, where 1 - e^-2x would
/// lose digits.
inline float tanh(float x) {
  const float z = std::fabs(x), square = x * x;
  float p = -5.70498872745e-3f;
  p = multiply_add(p, square, 2.06390887954e-2f);
  p = multiply_add(p, square, -5.37397155531e-2f);
  p = multiply_add(p, square, 1.33314422036e-1f);
  p = multiply_add(p, square, -3.33332819422e-1f);
  const float near_zero = multiply_add(p * square, x, x);
  const float far = std::copysign(1.0f - 2.0f / (exp(2.0f * z) + 1.0f), x);
  return z < 0.625f ? near_zero : far;
}

/// A function and its derivative at one point.
struct ValueSlope {
  float value;
  float slope;
};

/// silu and sigmoid(x) (1 + x (1 - sigmoid(x))); of NaN the value alone is NaN.
inline ValueSlope silu_slope(float x) {
  const Sigmoid s = sigmoid(x);
  return {x * s.value, s.value * multiply_add(detail::within_scale(x), s.complement, 1.0f)};
}

// GELU, Hendrycks & Gimpel 2016: x Phi(x), Phi the normal distribution function, and its tanh form, where
// Phi(x) is replaced by (1 + tanh(u)) / 2 = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).

namespace detail {

constexpr float kTwoRootTwoOverPi = 0x1.988454p+0f;
constexpr float kCubic = 0.044715f;

/// Beyond +-30 the sigmoid of 2u is 0 or 1, whatever the cube overflows to; its slope would be 0 times
/// infinity. NaN passes.
inline float within_thirty(float x) {
  const float above = x < -30.0f ? -30.0f : x;
  return above > 30.0f ? 30.0f : above;
}

/// Phi(x) and e^(-x^2/2). Phi(-z) = e^(-z^2/2) P(1 / (1 + 0.3 z)) for z >= 0: P of degree 8 by Remez exchange
/// for the relative error on 0 <= z <= 15, where Phi(-z) is below the smallest number: 5.8e-8.
struct Normal {
  float distribution;
  float bell;
};
inline Normal normal(float x) {
  const float z = std::fabs(x);
  const float t = 1.0f / multiply_add(0.3f, z, 1.0f);
  float p = 0x1.3ac772p-5f;
  p = multiply_add(p, t, -0x1.5aeb1cp-3f);
  p = multiply_add(p, t, 0x1.d541e4p-3f);
  p = multiply_add(p, t, -0x1.3b90cep-4f);
  p = multiply_add(p, t, 0x1.24ab42p-3f);
  p = multiply_add(p, t, 0x1.832e7p-4f);
  p = multiply_add(p, t, 0x1.f38ca8p-4f);
  p = multiply_add(p, t, 0x1.e96614p-4f);
  p = multiply_add(p, t, 0x1.f6f0f6p-18f);
  const float bell = exp_of_nonpositive(-0.5f * z * z);
  const float tail = bell * p;
  return {x < 0.0f ? tail : 1.0f - tail, bell};
}

}  // namespace detail

inline float gelu_tanh(float x) {
  return x * sigmoid(detail::kTwoRootTwoOverPi * x * multiply_add(detail::kCubic * x, x, 1.0f)).value;
}

inline ValueSlope gelu_tanh_slope(float x) {
  const float c = detail::within_thirty(x);
  const float cubed = detail::kCubic * c * c;
  const Sigmoid s = sigmoid(detail::kTwoRootTwoOverPi * c * (1.0f + cubed));
  const float inner =
      detail::kTwoRootTwoOverPi * c * multiply_add(3.0f, cubed, 1.0f);  // x times the slope of 2u
  return {x * s.value, s.value * multiply_add(inner, s.complement, 1.0f)};
}

inline float gelu(float x) {
  return x * detail::normal(x).distribution;
}

inline ValueSlope gelu_slope(float x) {
  constexpr float kOverRootTwoPi = 0x1.988454p-2f;
  const detail::Normal n = detail::normal(x);
  return {x * n.distribution, n.distribution + x * n.bell * kOverRootTwoPi};
}

}  // namespace moeloom::vector_math
