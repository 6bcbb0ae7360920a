#include "moeloom/tensor/dtype.hpp"

#include "moeloom/base/errors.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

TEST(DType, HasItsSafetensorsNameAndSize) {
  struct Case {
    DType type;
    const char* name;
    Index bytes;
  };
  for (const Case& c : {Case{DType::kF32, "F32", 4},
                        {DType::kBF16, "BF16", 2},
                        {DType::kF16, "F16", 2},
                        {DType::kF64, "F64", 8},
                        {DType::kI64, "I64", 8},
                        {DType::kI32, "I32", 4},
                        {DType::kU8, "U8", 1},
                        {DType::kF8E4M3, "F8_E4M3", 1},
                        {DType::kF8E5M2, "F8_E5M2", 1},
                        {DType::kF8E8M0, "F8_E8M0", 1}}) {
    EXPECT_EQ(name_of(c.type), c.name);
    EXPECT_EQ(bytes_of(c.type), c.bytes);
    EXPECT_EQ(dtype_from_name(c.name), c.type);
  }
  EXPECT_FALSE(dtype_from_name("f32").has_value());
  EXPECT_FALSE(dtype_from_name("").has_value());
}

TEST(BFloat16, RoundsToNearestWithTiesToEven) {
  struct Case {
    std::uint32_t value;
    std::uint16_t bits;
  };
  const Case cases[] = {
      {0x3F800000, 0x3F80},                                              // 1
      {0x3F808000, 0x3F80},                                              // half way above an even one: down
      {0x3F818000, 0x3F82},                                              // half way above an odd one: up
      {0x3F808001, 0x3F81}, {0x3F807FFF, 0x3F80}, {0x80000000, 0x8000},  // -0
      {0x00000001, 0x0000}, {0x00008001, 0x0001},                        // subnormals
      {0x007FFFFF, 0x0080},  // the largest subnormal carries into the normals
      {0x7F7FFFFF, 0x7F80},  // the largest float carries into infinity
      {0x7F800000, 0x7F80}, {0xFF800000, 0xFF80},
  };
  for (const Case& c : cases) EXPECT_EQ(float_to_bf16(from_bits(c.value)), c.bits) << std::hex << c.value;
}

TEST(BFloat16, KeepsNaNAlsoWhereItsPayloadIsCutOff) {
  for (const std::uint32_t bits : {0x7FC00000u, 0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0xFFFFFFFFu})
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(from_bits(bits))))) << std::hex << bits;
}

TEST(BFloat16, ReturnsEveryNumberThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    const float value = bf16_to_float(stored);
    ASSERT_TRUE(std::isnan(value) || float_to_bf16(value) == stored) << std::hex << bits;
  }
}

TEST(Half, RoundsToNearestWithTiesToEvenAndOverflowsToInfinity) {
  struct Case {
    float value;
    std::uint16_t bits;
  };
  const Case cases[] = {
      {1.0f, 0x3C00},         {1.0f + 0x1p-11f, 0x3C00}, {1.0f + 3 * 0x1p-11f, 0x3C02},
      {-2.0f, 0xC000},        {65504.0f, 0x7BFF},        {65519.0f, 0x7BFF},
      {65520.0f, 0x7C00},     {1e30f, 0x7C00},           {-kInfinity, 0xFC00},
      {0x1p-24f, 0x0001},     {0x1p-25f, 0x0000},        {0x1.8p-24f, 0x0002},
      {0x1.ff8p-15f, 0x03FF}, {-0.0f, 0x8000},
  };
  for (const Case& c : cases) EXPECT_EQ(float_to_f16(c.value), c.bits) << c.value;
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(kNaN))));
}

TEST(Half, ReturnsEveryNumberThroughFloat) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto stored = static_cast<std::uint16_t>(bits);
    const float value = f16_to_float(stored);
    ASSERT_TRUE(std::isnan(value) || float_to_f16(value) == stored) << std::hex << bits;
  }
}

/// What IEEE 754 says that 16 bits mean.
TEST(Half, IsTheFloatOfItsDefinition) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::uint32_t exponent = bits >> 10 & 0x1F, digits = bits & 0x3FF, sign = bits >> 15;
    const auto found = std::bit_cast<std::uint32_t>(f16_to_float(static_cast<std::uint16_t>(bits)));
    if (exponent == 0x1F) {
      const std::uint32_t payload = digits == 0 ? 0 : 0x400000 | digits << 13;  // of a quiet NaN
      ASSERT_EQ(found, sign << 31 | 0x7F800000 | payload) << std::hex << bits;
      continue;
    }
    const double whole = exponent == 0 ? digits : 0x400 | digits;
    const double value = std::ldexp(whole, static_cast<int>(exponent == 0 ? 1 : exponent) - 25);
    const auto expected = static_cast<float>(sign == 1 ? -value : value);
    ASSERT_EQ(found, std::bit_cast<std::uint32_t>(expected)) << std::hex << bits;
  }
}

/// Of exponent bits with this bias over so many digits, without what E4M3, E5M2 and E8M0 have of NaN.
float defined(unsigned bits, int digits, int bias) {
  const unsigned exponent = (bits & 0x7F) >> digits, fraction = bits & ((1u << digits) - 1);
  const unsigned whole = exponent == 0 ? fraction : fraction | 1u << digits;
  const double value = std::ldexp(whole, static_cast<int>(exponent == 0 ? 1 : exponent) - bias - digits);
  return static_cast<float>(bits >= 0x80 ? -value : value);
}

TEST(EightBits, AreTheFloatsOfTheirDefinition) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    const auto stored = static_cast<std::uint8_t>(bits);
    const float e4m3 = f8_e4m3_to_float(stored), e5m2 = f8_e5m2_to_float(stored);
    const float e8m0 = f8_e8m0_to_float(stored);
    if ((bits & 0x7F) == 0x7F)
      EXPECT_TRUE(std::isnan(e4m3)) << bits;
    else
      EXPECT_EQ(std::bit_cast<std::uint32_t>(e4m3), std::bit_cast<std::uint32_t>(defined(bits, 3, 7)))
          << bits;
    if ((bits & 0x7F) > 0x7C)
      EXPECT_TRUE(std::isnan(e5m2)) << bits;
    else if ((bits & 0x7F) == 0x7C)
      EXPECT_EQ(e5m2, bits >= 0x80 ? -kInfinity : kInfinity);
    else
      EXPECT_EQ(std::bit_cast<std::uint32_t>(e5m2), std::bit_cast<std::uint32_t>(defined(bits, 2, 15)))
          << bits;
    if (bits == 255)
      EXPECT_TRUE(std::isnan(e8m0));
    else
      EXPECT_EQ(e8m0, static_cast<float>(std::ldexp(1.0, static_cast<int>(bits) - 127))) << bits;
  }
  EXPECT_EQ(f8_e4m3_to_float(0x7E), 448.0f);
}

template <typename Stored>
std::vector<float> converted(DType type, const std::vector<Stored>& values) {
  // One byte further than the allocation, so that the numbers are not aligned.
  std::vector<char> bytes(values.size() * sizeof(Stored) + 1);
  if (!values.empty()) std::memcpy(bytes.data() + 1, values.data(), values.size() * sizeof(Stored));
  std::vector<float> target(values.size());
  convert_to_float(type, bytes.data() + 1, static_cast<Index>(values.size()), target.data());
  return target;
}

TEST(ConvertToFloat, ReadsEveryTypeAtAnyAlignment) {
  using Floats = std::vector<float>;
  EXPECT_EQ(converted<float>(DType::kF32, {1.5f, -2.0f}), (Floats{1.5f, -2.0f}));
  EXPECT_EQ(converted<std::uint16_t>(DType::kBF16, {0x3FC0, 0xC000}), (Floats{1.5f, -2.0f}));
  EXPECT_EQ(converted<std::uint16_t>(DType::kF16, {0x3E00, 0xC000}), (Floats{1.5f, -2.0f}));
  EXPECT_EQ(converted<double>(DType::kF64, {0.1, 1e300}), (Floats{0.1f, kInfinity}));
  EXPECT_EQ(converted<std::int64_t>(DType::kI64, {-3, (1 << 24) + 1}), (Floats{-3.0f, 16777216.0f}));
  EXPECT_EQ(converted<std::int32_t>(DType::kI32, {-3, 7}), (Floats{-3.0f, 7.0f}));
  EXPECT_EQ(converted<std::uint8_t>(DType::kU8, {0, 255}), (Floats{0.0f, 255.0f}));
  EXPECT_EQ(converted<std::uint8_t>(DType::kF8E4M3, {0x38, 0xC4}), (Floats{1.0f, -3.0f}));
  EXPECT_EQ(converted<std::uint8_t>(DType::kF8E5M2, {0x3C, 0xC2}), (Floats{1.0f, -3.0f}));
  EXPECT_EQ(converted<std::uint8_t>(DType::kF8E8M0, {127, 130}), (Floats{1.0f, 8.0f}));
  EXPECT_EQ(converted<float>(DType::kF32, {}), Floats{});
}

TEST(ConvertToFloat, RefusesWhatIsOnlyCopied) {
  float target = 0;
  for (const char* name : {"BOOL", "I8", "U64"})
    EXPECT_THROW(convert_to_float(dtype_from_name(name).value(), "12345678", 1, &target), Error) << name;
}

}  // namespace
}  // namespace moeloom
