#include "moeloom/tensor/matrix.hpp"

#include "moeloom/base/errors.hpp"

#include <cstdint>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace moeloom {
namespace {

Matrix counting(Index rows, Index cols) {
  Matrix m(rows, cols);
  for (Index i = 0; i < rows * cols; ++i)
    m.view().flat()[static_cast<std::size_t>(i)] = static_cast<float>(i);
  return m;
}

TEST(Matrix, BeginsAsZerosOnACacheLine) {
  for (const auto& [rows, cols] : {std::pair<Index, Index>{0, 0}, {0, 5}, {1, 1}, {130, 7}, {1024, 1024}}) {
    const Matrix m(rows, cols);
    EXPECT_EQ(m.rows(), rows);
    EXPECT_EQ(m.cols(), cols);
    for (const float x : m.view().flat()) ASSERT_EQ(x, 0.0f);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(m.view().data) % 64, 0u);
  }
  EXPECT_THROW(Matrix(-1, 2), ShapeError);
}

TEST(Matrix, TakesWholeHugePagesFromOneOn) {
  constexpr Index kHugePage = 2 << 20;
  EXPECT_EQ(array_bytes(0), 0);
  EXPECT_EQ(array_bytes(kHugePage / 4 - 1), kHugePage - 4);
  EXPECT_EQ(array_bytes(kHugePage / 4), kHugePage);
  EXPECT_EQ(array_bytes(kHugePage + 1, 1), 2 * kHugePage);
  EXPECT_EQ(rows_bytes(3, {2, 0, kHugePage / 4}), 4 * 6 + 3 * kHugePage) << "each matrix for itself";
}

TEST(Matrix, KeepsItsMemoryWhenReshapedToLess) {
  Matrix m(10, 10);
  const float* memory = m.row(0);
  m.reshape_uninitialised(4, 25);
  EXPECT_EQ(m.row(0), memory);
  EXPECT_EQ(m.row(1), memory + 25);
  m.reshape_uninitialised(0, 3);
  EXPECT_EQ(m.view().size(), 0);
  m.reshape_uninitialised(11, 10);
  EXPECT_EQ(m.view().size(), 110);
}

TEST(Matrix, TakesItsMemoryAlongWhenMovedAndCanBeShapedAnew) {
  Matrix source = counting(2, 3);
  const float* memory = source.row(0);
  Matrix target = std::move(source);
  EXPECT_EQ(target.row(0), memory);
  EXPECT_EQ(target.view()(1, 2), 5.0f);
  source.reshape_uninitialised(2, 2);
  fill(source, 1.0f);
  EXPECT_EQ(source.view()(1, 1), 1.0f);
}

TEST(MatrixView, SeesRowsAndColumnsOfAnothersMemory) {
  Matrix m = counting(4, 5);
  const MatrixView part = m.view().rows_from(1, 2).cols_from(2, 3);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.cols, 3);
  EXPECT_EQ(part(0, 0), 7.0f);
  EXPECT_EQ(part(1, 2), 14.0f);
  EXPECT_FALSE(part.contiguous());
  EXPECT_TRUE(m.view().rows_from(1, 2).contiguous());
  EXPECT_TRUE(part.rows_from(0, 1).contiguous());
}

TEST(MatrixFunctions, TouchOnlyTheViewedPart) {
  Matrix m = counting(200, 5);
  const Matrix source = counting(150, 2);
  copy(source, m.view().rows_from(20, 150).cols_from(1, 2));
  add(source, m.view().rows_from(20, 150).cols_from(1, 2));
  fill(m.view().rows_from(199, 1).cols_from(0, 1), -1.0f);
  for (Index i = 0; i < 200; ++i)
    for (Index j = 0; j < 5; ++j) {
      const bool inside = i >= 20 && i < 170 && (j == 1 || j == 2);
      const float expected =
          inside ? 2.0f * static_cast<float>((i - 20) * 2 + j - 1) : static_cast<float>(i * 5 + j);
      ASSERT_EQ(m.view()(i, j), i == 199 && j == 0 ? -1.0f : expected) << i << ", " << j;
    }
}

TEST(MatrixFunctions, CopyByNameAndRefuseUnequalShapes) {
  const Matrix m = counting(3, 4);
  const Matrix part = Matrix::copy_of(m.view().cols_from(1, 2));
  EXPECT_TRUE(part.view().contiguous());
  EXPECT_EQ(part.view()(2, 1), 10.0f);
  Matrix other(4, 3);
  EXPECT_THROW(copy(m, other), ShapeError);
  EXPECT_THROW(add(m, other), ShapeError);
}

}  // namespace
}  // namespace moeloom
