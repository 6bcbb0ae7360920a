// Masters in bf16 and F16 give the bits of the same numbers in fp32, in every product that reads masters.
#include "moeloom/base/errors.hpp"
#include "moeloom/kernels/dense.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <utility>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

constexpr std::array kTypes = {DType::kBF16, DType::kF16};

/// Numbers of a type, both ways.
struct Masters {
  std::vector<std::uint16_t> memory;
  Matrix floats;
  ConstRows halves;

  Masters(DType type, Matrix numbers) : floats(std::move(numbers)) {
    for (float& number : floats.view().flat()) {
      memory.push_back(type == DType::kF16 ? float_to_f16(number) : float_to_bf16(number));
      number = type == DType::kF16 ? f16_to_float(memory.back()) : bf16_to_float(memory.back());
    }
    halves = ConstHalfView(memory.data(), floats.rows(), floats.cols(), type);
  }
  Masters(DType type, Index rows, Index cols, std::uint64_t seed)
      : Masters(type, random_matrix(rows, cols, seed)) {}
  Masters(const Masters&) = delete;
  Masters& operator=(const Masters&) = delete;
};

/// All NaN are one.
bool same(const Matrix& a, const Matrix& b) {
  return std::ranges::equal(a.view().flat(), b.view().flat(), [](float one, float other) {
    return std::isnan(one) ? std::isnan(other)
                           : std::bit_cast<std::uint32_t>(one) == std::bit_cast<std::uint32_t>(other);
  });
}

const std::vector<DenseKernel> kDense = {native_dense(), tiled_dense(), tiled_bf16_dense(Bf16Unit::kPairs),
                                         tiled_bf16_dense(Bf16Unit::kTiles)};
const std::vector<GroupedMatmulKernel> kGrouped = {native_grouped_matmul(), packed_grouped_matmul(),
                                                   packed_bf16_grouped_matmul(Bf16Unit::kPairs),
                                                   packed_bf16_grouped_matmul(Bf16Unit::kTiles)};

/// Rows, out and in: widths that fill panels and that do not; rows that are few, and more than a block.
const std::vector<std::array<Index, 3>> kShapes = {
    {1, 64, 64}, {3, 70, 33}, {7, 33, 129}, {40, 128, 96}, {500, 65, 1050}};

std::vector<std::pair<DType, std::array<Index, 3>>> all_pairs() {
  std::vector<std::pair<DType, std::array<Index, 3>>> pairs;
  for (const DType type : kTypes)
    for (const auto& shape : kShapes) pairs.emplace_back(type, shape);
  return pairs;
}

TEST(HalfMasters, GiveTheBitsOfFloatsInDenseProducts) {
  for (const DenseKernel& kernel : kDense)
    for (const auto& [type, shape] : all_pairs()) {
      const auto& [rows, out, in] = shape;
      const Masters w(type, out, in, 3);
      const Matrix x = random_matrix(rows, in, 4), dy = random_matrix(rows, out, 5);
      Matrix y(rows, out), y_half(rows, out), dx(rows, in), dx_half(rows, in);
      kernel.forward(x, w.floats, y, Write::kReplace);
      kernel.forward(x, w.halves, y_half, Write::kReplace);
      kernel.input_grad(dy, w.floats, dx, Write::kReplace);
      kernel.input_grad(dy, w.halves, dx_half, Write::kReplace);
      EXPECT_TRUE(same(y, y_half)) << rows << " " << out << " " << in;
      EXPECT_TRUE(same(dx, dx_half)) << rows << " " << out << " " << in;
    }
}

TEST(HalfMasters, GiveTheBitsOfFloatsInGroupedProducts) {
  const std::vector<Index> counts = {2, 0, 41, 5, 300, 1};  // of three groups from two sources
  const GroupedRows rows{counts, 2};
  for (const GroupedMatmulKernel& kernel : kGrouped)
    for (const auto& [type, shape] : all_pairs()) {
      const auto& [unused, out, in] = shape;
      const Masters w(type, 3 * out, in, 3);
      const Matrix x = random_matrix(rows.total(), in, 4), dy = random_matrix(rows.total(), out, 5);
      for (const bool pack : {false, true}) {
        PackedWeights faces, half_faces;
        if (pack) faces.pack({w.floats.view(), 3}, kernel.element);
        if (pack) half_faces.pack({w.halves, 3}, kernel.element);
        Matrix y(rows.total(), out), y_half(rows.total(), out), dx(rows.total(), in),
            dx_half(rows.total(), in);
        kernel.forward({w.floats.view(), 3}, faces, x, rows, y);
        kernel.forward({w.halves, 3}, half_faces, x, rows, y_half);
        kernel.input_grad({w.floats.view(), 3}, faces, dy, rows, dx);
        kernel.input_grad({w.halves, 3}, half_faces, dy, rows, dx_half);
        EXPECT_TRUE(same(y, y_half)) << out << " " << in << (pack ? " packed" : "");
        EXPECT_TRUE(same(dx, dx_half)) << out << " " << in << (pack ? " packed" : "");
      }
    }
}

TEST(HalfMasters, AreReadByKernelsForDecodingToo) {
  for (const auto& [type, in] : {std::pair(DType::kBF16, 1),
                                 {DType::kBF16, 40},
                                 {DType::kBF16, 67},
                                 {DType::kF16, 1},
                                 {DType::kF16, 40},
                                 {DType::kF16, 67}})
    for (const Index rows : {1, 2, 3, 4, 9}) {
      const Masters w(type, 48, in, 3);
      const Matrix x = random_matrix(rows, in, 4);
      Matrix y(rows, 48), y_half(rows, 48);
      streamed_dense().forward(x, w.floats, y, Write::kReplace);
      streamed_dense().forward(x, w.halves, y_half, Write::kReplace);
      EXPECT_TRUE(same(y, y_half)) << in << " " << rows;
      const std::vector<Index> counts = {rows, 0, 1};
      const GroupedRows grouped{counts, 1};
      const Matrix each = random_matrix(rows + 1, in, 5);
      Matrix z(rows + 1, 16), z_half(rows + 1, 16);
      streamed_grouped_matmul().forward({w.floats, 3}, PackedWeights(), each, grouped, z);
      streamed_grouped_matmul().forward({w.halves, 3}, PackedWeights(), each, grouped, z_half);
      EXPECT_TRUE(same(z, z_half)) << in << " " << rows;
    }
}

/// Each of the 65536 alone in its row or column, at every place in a vector: subnormals, infinities and NaN.
TEST(HalfMasters, GiveEveryNumberThatF16HasToEveryProduct) {
  constexpr Index kAll = 0x10000, kWidth = 32;
  Matrix down(kAll, kWidth), along(kWidth, kAll);
  for (Index bits = 0; bits < kAll; ++bits)
    down.view()(bits, bits % kWidth) = along.view()(bits % kWidth, bits) =
        f16_to_float(static_cast<std::uint16_t>(bits));
  const Masters rows(DType::kF16, std::move(down)), columns(DType::kF16, std::move(along));
  Matrix x(1, kWidth), y(1, kAll), y_half(1, kAll);
  fill(x, 1.0f);
  std::vector<DenseKernel> kernels = kDense;
  kernels.push_back(streamed_dense());
  for (const DenseKernel& kernel : kernels) {
    kernel.forward(x, rows.floats, y, Write::kReplace);
    kernel.forward(x, rows.halves, y_half, Write::kReplace);
    EXPECT_TRUE(same(y, y_half));
    EXPECT_EQ(y_half.view()(0, 1), 0x1p-24f);
    EXPECT_EQ(y_half.view()(0, 0x7C00), INFINITY);
    EXPECT_TRUE(std::isnan(y_half.view()(0, 0xFC01)));
    kernel.input_grad(x, columns.floats, y, Write::kReplace);
    kernel.input_grad(x, columns.halves, y_half, Write::kReplace);
    EXPECT_TRUE(same(y, y_half));
  }
}

TEST(HalfMasters, InF16AreNoRows) {
  const Masters x(DType::kF16, 3, 8, 1);
  const Matrix w = random_matrix(4, 8, 2);
  Matrix y(3, 4);
  for (const DenseKernel& kernel : kDense)
    EXPECT_THROW(kernel.forward(x.halves, w, y, Write::kReplace), ShapeError);
}

}  // namespace
}  // namespace moeloom
