#include "moe/dispatch/wire.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

namespace moeloom {
namespace {

constexpr std::uint32_t kUpper = 0xFFFF0000u;

/// bf16 in the upper half, as float_to_bf16 rounds; inline and without a branch, to become vector code.
std::uint32_t rounded(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t nearest = bits + 0x7FFFu + (bits >> 16 & 1u);
  return (value != value ? bits | 0x400000u : nearest) & kUpper;
}

}  // namespace

void to_wire(const float* row, Index cols, WireDType type, float* wire) {
  if (type == WireDType::kFp32) {
    std::memcpy(wire, row, at(cols) * sizeof(float));
    return;
  }
  const Index half = ceil_div(cols, 2);
  const float* second = row + half;
  for (Index i = 0; i < cols - half; ++i)
    wire[i] = std::bit_cast<float>(rounded(row[i]) >> 16 | rounded(second[i]));
  if (cols % 2 != 0) wire[half - 1] = std::bit_cast<float>(rounded(row[half - 1]) >> 16);
}

void from_wire(const float* wire, Index cols, WireDType type, float* row) {
  if (type == WireDType::kFp32) {
    std::memcpy(row, wire, at(cols) * sizeof(float));
    return;
  }
  const Index half = ceil_div(cols, 2);
  float* second = row + half;
  for (Index i = 0; i < half; ++i) row[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(wire[i]) << 16);
  for (Index i = 0; i < cols - half; ++i)
    second[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(wire[i]) & kUpper);
}

}  // namespace moeloom
