#include "moeloom/tensor/stored_rows.hpp"

#include "moeloom/base/errors.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

float float_of(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}

/// Every upper half with lower halves at and around a tie.
TEST(StoredRows, HalvesMakeEveryFloatAgainAndTheUpperIsTheNearest) {
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper)
    for (const std::uint32_t lower : {0x0000u, 0x0001u, 0x1234u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const float value = float_of(upper << 16 | lower);
      const Halves halves = split(value);
      const float high = bf16_to_float(halves.high), again = joined(halves.high, halves.low);
      if (!std::isfinite(value)) {
        ASSERT_EQ(std::isnan(high), std::isnan(value)) << upper << ' ' << lower;
        ASSERT_EQ(std::isnan(again), std::isnan(value)) << upper << ' ' << lower;
        ASSERT_TRUE(std::isnan(value) || (high == value && again == value)) << upper << ' ' << lower;
        continue;
      }
      ASSERT_EQ(std::bit_cast<std::uint32_t>(again), upper << 16 | lower);
      const bool is_tie = lower == 0x8000;
      ASSERT_EQ(halves.high, is_tie ? upper + 1 : float_to_bf16(value)) << upper << ' ' << lower;
    }
}

TEST(StoredRows, ReadAndWriteRowsOfEveryKind) {
  const std::vector<float> numbers = {1.0f, -2.5f, 3.14159274f, 1e-30f, 0.1f, -0.2f};
  Matrix floats(2, 3), memory;
  std::vector<std::uint16_t> high(6), low(6);
  const StoredRows whole(floats.view()), halves(Bf16View(high.data(), 2, 3), low.data()),
      rounded(Bf16View(high.data(), 2, 3), nullptr), f16(HalfView(high.data(), 2, 3, DType::kF16), nullptr);
  EXPECT_EQ(whole.storage(), Storage::kFp32);
  EXPECT_EQ(halves.storage(), Storage::kSplit);
  EXPECT_EQ(rounded.storage(), Storage::kBf16);
  EXPECT_EQ(f16.storage(), Storage::kF16);
  for (const StoredRows& rows : {whole, halves, rounded, f16}) {
    SCOPED_TRACE(name_of(rows.storage()));
    rows.write(numbers);
    const ConstMatrixView read = rows.read(memory);
    ASSERT_EQ(read.rows, 2);
    const ConstMatrixView second = rows.rows_from(1, 1).read(memory);
    for (Index j = 0; j < 3; ++j) {
      const float number = numbers[at(3 + j)];
      EXPECT_EQ(second(0, j), rows.storage() == Storage::kBf16  ? bf16_to_float(float_to_bf16(number))
                              : rows.storage() == Storage::kF16 ? f16_to_float(float_to_f16(number))
                                                                : number);
    }
    EXPECT_EQ(rows.elements(4, 2).read(memory)(0, 0), rows.rows_from(1, 1).elements(1, 1).read(memory)(0, 0));
    EXPECT_THROW(rows.write(std::span(numbers).first(5)), ShapeError);
  }
  EXPECT_EQ(whole.read(memory).data, floats.view().data) << "floats are read where they lie";
  EXPECT_EQ(whole.words(), 6);
  EXPECT_EQ(halves.words(), 6);
  EXPECT_EQ(rounded.elements(0, 5).words(), 3);
  EXPECT_EQ(f16.elements(0, 5).words(), 3);
  EXPECT_EQ(f16.bytes()[0].size(), 12u);
  EXPECT_TRUE(f16.bytes()[1].empty());
}

TEST(StoredRows, ACopyIsWordsOfMemoryThatReadTheSame) {
  const std::vector<float> numbers = {0.1f, 0.2f, 0.3f};
  std::vector<std::uint16_t> high(3), low(3);
  const StoredRows rows(Bf16View(high.data(), 1, 3), low.data());
  rows.write(numbers);
  std::vector<float> place(at(rows.words()));
  const StoredRows copy = rows.copy_in(place.data());
  for (std::size_t half = 0; half < 2; ++half)
    std::ranges::copy(rows.bytes()[half], copy.bytes()[half].begin());
  rows.write(std::vector<float>(3, 7.0f));
  Matrix memory;
  EXPECT_TRUE(std::ranges::equal(copy.read(memory).flat(), numbers));
}

}  // namespace
}  // namespace moeloom
