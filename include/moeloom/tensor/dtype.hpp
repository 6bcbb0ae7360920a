// Number formats of files and of messages, and their conversion to fp32.
//
// No function here is collective or throws.
#pragma once

#include "moeloom/base/index.hpp"

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace moeloom {

/// Formats that can be read as numbers; of FP8 the scale of a weight is another tensor. dtype_from_name()
/// knows others too (BOOL, I8, I16, U16, U32, U64), as values behind these: tensors in them are copied byte
/// for byte, never read.
enum class DType { kF32, kBF16, kF16, kF64, kI64, kI32, kU8, kF8E4M3, kF8E5M2, kF8E8M0 };

/// Whether it is one that weights are trained and kept in: F32, BF16 or F16.
constexpr bool is_weight_type(DType type) {
  return type == DType::kF32 || type == DType::kBF16 || type == DType::kF16;
}
/// Of one number.
Index bytes_of(DType type);
/// The safetensors spelling: "F32", "BF16", ...
std::string_view name_of(DType type);
/// The inverse of name_of(); none for a name that safetensors has and this library has not.
std::optional<DType> dtype_from_name(std::string_view name);

/// Exact.
inline float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}
/// Rounds to nearest, ties to even; NaN stays NaN. Without a branch, so that loops over it become vector
/// code.
inline std::uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = value != value ? bits | 0x400000 : bits + 0x7FFF + (bits >> 16 & 1);
  return static_cast<std::uint16_t>(rounded >> 16);
}
/// Exact; a NaN keeps its payload and becomes quiet, as the instruction has it. Without a branch, and without
/// subnormal floats, which a thread may treat as zeros.
inline float f16_to_float(std::uint16_t bits) {
  constexpr std::uint32_t kToBias = (127 - 15) << 23, kInfinity = 0x7F800000;
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16, rest = std::uint32_t{bits & 0x7FFFu} << 13;
  // A subnormal is made from the smallest normal number with its digits, less that number.
  const float above = std::bit_cast<float>(rest + kToBias + (1u << 23)) - 0x1p-14f;
  const std::uint32_t special = rest | kInfinity | (bits & 0x3FF ? 0x400000u : 0u);
  const std::uint32_t finite = rest < 1u << 23 ? std::bit_cast<std::uint32_t>(above) : rest + kToBias;
  return std::bit_cast<float>(sign | (rest < 0x1Fu << 23 ? finite : special));
}
/// Rounds to nearest, ties to even; what is too large becomes infinity, NaN stays NaN.
std::uint16_t float_to_f16(float value);

/// Exact, as the next two: of OCP's FP8 (2023), which has no infinities in E4M3; and its E8M0, powers of two.
inline float f8_e4m3_to_float(std::uint8_t bits) {
  constexpr std::uint32_t kToBias = (127 - 7) << 23;
  const std::uint32_t sign = std::uint32_t{bits & 0x80u} << 24, rest = std::uint32_t{bits & 0x7Fu} << 20;
  // As in f16_to_float().
  const float above = std::bit_cast<float>(rest + kToBias + (1u << 23)) - 0x1p-6f;
  const std::uint32_t finite = rest < 1u << 23 ? std::bit_cast<std::uint32_t>(above) : rest + kToBias;
  return std::bit_cast<float>(sign | (rest == 0x7Fu << 20 ? 0x7FC00000u : finite));
}
inline float f8_e5m2_to_float(std::uint8_t bits) {
  return f16_to_float(static_cast<std::uint16_t>(bits << 8));
}
inline float f8_e8m0_to_float(std::uint8_t bits) {
  const std::uint32_t power = bits == 0 ? 0x00400000u : std::uint32_t{bits} << 23;
  return std::bit_cast<float>(bits == 255 ? 0x7FC00000u : power);
}

/// count numbers of `type` at `source` (any alignment) -> target [count], rounded to nearest where fp32 does
/// not hold them. For a format that is only copied nothing is written.
void convert_to_float(DType type, const void* source, Index count, float* target);

}  // namespace moeloom
