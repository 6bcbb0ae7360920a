#include "moeloom/tensor/rows.hpp"

#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

TEST(Rows, AreReadAsWhatTheyWereWrittenAs) {
  RowMemory memory;
  const Rows half = memory.reshape_uninitialised(DType::kBF16, 3, 5);
  auto view = std::get<Bf16View>(half);
  for (Index i = 0; i < 3; ++i)
    for (Index j = 0; j < 5; ++j) view(i, j) = static_cast<std::uint16_t>(10 * i + j);
  const ConstRows part = ConstRows(half).rows_from(1, 2).cols_from(2, 3);
  EXPECT_EQ(part.type(), DType::kBF16);
  EXPECT_EQ(part.rows(), 2);
  EXPECT_EQ(part.cols(), 3);
  part.visit([](auto rows) { EXPECT_EQ(as_float(rows(1, 2)), bf16_to_float(24)); });
  const RowMemory& written = memory;
  written.rows().visit([](auto rows) { EXPECT_EQ(as_float(rows(2, 4)), bf16_to_float(24)); });
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(view.row(1)) % 4, 0u) << "pairs are read as words";
}

TEST(Rows, OfFp32AreTheMatrixItself) {
  Matrix x(2, 3);
  const ConstRows rows = x;
  EXPECT_EQ(rows.type(), DType::kF32);
  EXPECT_EQ(rows.fp32().data, x.row(0));
  EXPECT_EQ(ConstRows().rows(), 0);
  EXPECT_EQ(ConstRows(RowMemory().rows()).rows(), 0);
}

TEST(Rows, ReuseMemoryThatIsLargeEnoughForEitherKind) {
  RowMemory memory;
  const auto large = std::get<MatrixView>(memory.reshape_uninitialised(DType::kF32, 4, 6));
  const auto half = std::get<Bf16View>(memory.reshape_uninitialised(DType::kBF16, 8, 6));
  EXPECT_EQ(static_cast<const void*>(large.data), static_cast<const void*>(half.data));
}

/// Another process that maps the memory finds the rows from the address and the shape alone.
TEST(Rows, InSomeoneElsesMemoryBeginAtWholeFloats) {
  for (const DType type : {DType::kF32, DType::kBF16}) {
    EXPECT_EQ(floats_of_row(type, 5), type == DType::kF32 ? 5 : 3);
    std::vector<float> memory(at(4 * floats_of_row(type, 5)));
    const Rows written = rows_in(memory.data(), type, 4, 5);
    for (Index i = 0; i < 4; ++i)
      for (Index j = 0; j < 5; ++j) set(written, i, j, static_cast<float>(10 * i + j));
    const ConstRows last = rows_in(memory.data() + 3 * floats_of_row(type, 5), type, 1, 5);
    EXPECT_EQ(last.type(), type);
    last.visit([&](auto row) {
      for (Index j = 0; j < 5; ++j) EXPECT_EQ(as_float(row(0, j)), static_cast<float>(30 + j));
    });
  }
}

TEST(Rows, OfBf16AreNoFp32AndOtherFormatsAreNoRows) {
  std::vector<std::uint16_t> numbers(4);
  EXPECT_THROW(ConstRows(Bf16View(numbers.data(), 2, 2)).fp32(), ShapeError);
  EXPECT_THROW(RowMemory().reshape_uninitialised(DType::kI64, 1, 1), ShapeError);
  EXPECT_THROW(RowMemory().reshape_uninitialised(DType::kF16, 1, 1), ShapeError) << "of weights alone";
}

TEST(Rows, OfHalvesAreWhatTheirViewSays) {
  std::vector<std::uint16_t> numbers;
  for (const float number : {1.0f, -2.0f, 3.0f, 0.5f, 65504.0f, 0x1p-24f})
    numbers.push_back(float_to_f16(number));
  Matrix memory;
  const ConstRows f16 = ConstHalfView(numbers.data(), 3, 2, DType::kF16);
  EXPECT_EQ(f16.type(), DType::kF16);
  EXPECT_THROW(f16.fp32(), ShapeError);
  const ConstMatrixView wide = f16.rows_from(1, 2).widened(memory);
  EXPECT_TRUE(std::ranges::equal(wide.flat(), std::vector<float>{3.0f, 0.5f, 65504.0f, 0x1p-24f}));
  EXPECT_EQ(f16.cols_from(1, 1).widened(memory)(2, 0), 0x1p-24f);
  const ConstRows bf16 = ConstHalfView(Bf16View(numbers.data(), 3, 2));
  EXPECT_EQ(bf16.type(), DType::kBF16);
  EXPECT_EQ(bf16.widened(memory)(0, 0), bf16_to_float(numbers[0]));
}

}  // namespace
}  // namespace moeloom
