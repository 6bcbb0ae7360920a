// Codes of moments in one byte: what one means, and which one a number becomes (moments.hpp).
//
// A code is found by the square root of what it stands for: of the share |m| / s, and of sqrt(v) / sqrt(s).
// So a second moment is given by its root, which its weight's update takes anyway.
#pragma once

#include "train/moments.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace moeloom {

/// In [0, 1), by the upper 23 of 32 random bits.
inline float fraction_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits >> 9 | 0x3f800000u) - 1;
}

struct FirstCodes {
  using Code = std::int8_t;
  static constexpr float kLevels = 127;
  static float value(Code code, float scale) {
    const float root = static_cast<float>(code) * (1 / kLevels);
    return scale * (root * std::abs(root));
  }
  static float given(float value) { return value; }
  static float scale_of(float largest) { return largest; }
  /// t = factor |m| lies between q^2 and (q + 1)^2: it becomes q + 1 as often as its place between them says.
  /// With u = 1 - fraction that is the number of all c >= 0 with c^2 + u (2 c + 1) <= t. The inequality is
  /// (c + u)^2 <= t - u (1 - u), so one root tells it.
  static int at_random(float given, float factor, float fraction) {
    const float t = std::abs(given) * factor;
    const float root = std::sqrt(std::max(t + fraction * (fraction - 1), 0.0f));
    return static_cast<int>(std::copysign(std::min(root + fraction, kLevels), given));
  }
  static int nearest(float given, float factor) {
    return static_cast<int>(std::copysign(std::sqrt(std::abs(given) * factor) + 0.5f, given));
  }
};

struct SecondCodes {
  using Code = std::uint8_t;
  static constexpr float kLevels = 255;
  static float value(Code code, float scale) {
    const float root = static_cast<float>(code) * (1 / kLevels), square = root * root;
    return scale * (square * square);
  }
  static float given(float value) { return std::sqrt(value); }
  static float scale_of(float largest) { return largest * largest; }
  /// The square of factor sqrt(v) lies between q^4 and (q + 1)^4, (2 q + 1) (2 q^2 + 2 q + 1) apart.
  static int at_random(float given, float factor, float fraction) {
    const float t = given * factor, q = std::floor(std::sqrt(t)), square = q * q;
    const float odd = 2 * q + 1, apart = odd * (2 * square + odd);
    return in_range(q + (fraction * apart < (t - square) * (t + square) ? 1.0f : 0.0f), given);
  }
  static int nearest(float given, float factor) { return in_range(std::sqrt(given * factor) + 0.5f, given); }

 private:
  static int in_range(float code, float given) {
    return static_cast<int>(std::min(std::max(code, given > 0 ? 1.0f : 0.0f), kLevels));
  }
};

static_assert(127 * (1 / FirstCodes::kLevels) == 1 && 255 * (1 / SecondCodes::kLevels) == 1,
              "a scale is read as it was written");

/// A scale and its block's codes, in memory of someone else.
template <typename Kind>
struct Int8Block {
  float* scale;
  typename Kind::Code* codes;
  explicit Int8Block(float* words) : scale(words), codes(reinterpret_cast<typename Kind::Code*>(words + 1)) {}

  void decode(std::span<float> values) const {
    const float here = *scale;
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = Kind::value(codes[i], here);
  }
  /// The scale is written; what `given` numbers are multiplied by: the largest reaches the last code in spite
  /// of two roundings, or the scale that is found from it in a checkpoint would be another.
  float begin(std::span<const float> given) const {
    const float largest = largest_of(given);
    const bool is_zero = largest < 1e-34f;  // whose inverse would be infinite
    const float of_it = Kind::scale_of(largest);
    *scale = is_zero || of_it < std::numeric_limits<float>::min() ? 0.0f : of_it;
    constexpr float kFull = Kind::kLevels * Kind::kLevels * (1 + 2 * std::numeric_limits<float>::epsilon());
    return *scale == 0 ? 0.0f : kFull / largest;
  }

 private:
  /// Sizes of floats are ordered as their bits are, and a maximum of integers is vectorised.
  static float largest_of(std::span<const float> values) {
    std::uint32_t largest = 0;
    for (const float value : values)
      largest = std::max(largest, std::bit_cast<std::uint32_t>(value) & 0x7fffffffu);
    return std::bit_cast<float>(largest);
  }
};

}  // namespace moeloom
