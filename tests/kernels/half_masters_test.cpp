// Masters in bf16 give the bits of the same numbers in fp32, in every product that reads masters.
#include "moeloom/kernels/dense.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <algorithm>
#include <array>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

/// Numbers that bf16 has, both ways.
struct Masters {
  RowMemory memory;
  Matrix floats;
  ConstRows halves;

  Masters(Index rows, Index cols, std::uint64_t seed) : floats(random_matrix(rows, cols, seed)) {
    for (float& number : floats.view().flat()) number = bf16_to_float(float_to_bf16(number));
    halves = testing::as_bf16(floats, memory);
  }
  Masters(const Masters&) = delete;
  Masters& operator=(const Masters&) = delete;
};

bool same(const Matrix& a, const Matrix& b) {
  return std::ranges::equal(a.view().flat(), b.view().flat());
}

/// Rows, out and in: widths that fill panels and that do not; rows that are few, and more than a block.
const std::vector<std::array<Index, 3>> kShapes = {
    {1, 64, 64}, {3, 70, 33}, {7, 33, 129}, {40, 128, 96}, {500, 65, 1050}};

TEST(HalfMasters, GiveTheBitsOfFloatsInDenseProducts) {
  for (const DenseKernel& kernel : {native_dense(), tiled_dense(), tiled_bf16_dense(Bf16Unit::kPairs),
                                    tiled_bf16_dense(Bf16Unit::kTiles)})
    for (const auto& [rows, out, in] : kShapes) {
      const Masters w(out, in, 3);
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
  for (const GroupedMatmulKernel& kernel :
       {native_grouped_matmul(), packed_grouped_matmul(), packed_bf16_grouped_matmul(Bf16Unit::kPairs),
        packed_bf16_grouped_matmul(Bf16Unit::kTiles)})
    for (const auto& [unused, out, in] : kShapes) {
      const Masters w(3 * out, in, 3);
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
  for (const Index in : {1, 40, 67})
    for (const Index rows : {1, 2, 3, 4, 9}) {
      const Masters w(48, in, 3);
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

}  // namespace
}  // namespace moeloom
