// Folders with tensors in FP8 and their scales, and the numbers in them straight from the formats.
#pragma once

#include "io/safetensors_shards.hpp"
#include "moeloom/tensor/dtype.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace moeloom::testing {

/// Byte i of a tensor in FP8: every number, also subnormal ones, but no NaN and no infinity.
inline std::byte fp8_byte(Index i) {
  const Index bits = (i * 37 + i / 7) % 256;
  return static_cast<std::byte>(bits % 128 > 0x7A ? bits - 8 : bits);
}

inline float fp8_number(DType type, Index i) {
  const auto bits = std::to_integer<unsigned>(fp8_byte(i));
  const int digits = type == DType::kF8E4M3 ? 3 : 2, bias = type == DType::kF8E4M3 ? 7 : 15;
  const unsigned exponent = (bits & 0x7F) >> digits, fraction = bits & ((1u << digits) - 1);
  const double whole = exponent == 0 ? fraction : fraction + (1u << digits);
  const double value = std::ldexp(whole, static_cast<int>(exponent == 0 ? 1 : exponent) - bias - digits);
  return static_cast<float>(bits >= 128 ? -value : value);
}

/// Number i of a tensor of scales or of plain numbers; of F8_E8M0 a power of two.
inline float scale_number(DType type, Index i) {
  if (type == DType::kF8E8M0) return std::ldexp(1.0f, static_cast<int>(i % 7) - 3);
  const float value = 0.0625f + 0.0039f * static_cast<float>(i % 251);
  if (type == DType::kBF16) return bf16_to_float(float_to_bf16(value));
  return type == DType::kF16 ? f16_to_float(float_to_f16(value)) : value;
}

struct StoredPart {
  std::string name;
  DType type = DType::kF32;
  std::vector<Index> shape;
  std::function<std::byte(Index)> byte = {};  // of another tensor than fp8_number() and scale_number() say
};

inline std::vector<std::byte> bytes_of_number(DType type, Index i) {
  std::vector<std::byte> bytes(at(bytes_of(type)));
  const auto copy = [&](auto value) { std::memcpy(bytes.data(), &value, bytes.size()); };
  const float number = scale_number(type, i);
  if (type == DType::kF8E4M3 || type == DType::kF8E5M2)
    copy(fp8_byte(i));
  else if (type == DType::kF8E8M0)
    copy(static_cast<std::uint8_t>(127 + std::ilogb(number)));
  else if (type == DType::kBF16)
    copy(float_to_bf16(number));
  else if (type == DType::kF16)
    copy(float_to_f16(number));
  else
    copy(number);
  return bytes;
}

inline void write_parts(const std::filesystem::path& folder, const std::vector<StoredPart>& parts) {
  std::vector<TensorSpec> specs;
  for (const StoredPart& part : parts) specs.push_back({part.name, part.type, part.shape});
  const ShardPlan plan = plan_shards(specs, kShardBytes);
  create_shards(folder, plan);
  ShardWriter writer(folder, plan);
  for (const StoredPart& part : parts) {
    Index count = 1;
    for (const Index size : part.shape) count *= size;
    std::vector<std::byte> bytes;
    for (Index i = 0; i < count; ++i) {
      if (part.byte)
        bytes.push_back(part.byte(i));
      else
        for (const std::byte byte : bytes_of_number(part.type, i)) bytes.push_back(byte);
    }
    writer.write_bytes(part.name, 0, bytes);
  }
  writer.close();
}

}  // namespace moeloom::testing
