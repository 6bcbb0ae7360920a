// Products of tiles (AMX, or what stands in for it) against the order of their sums.
#include "moeloom/kernels/dense.hpp"

#include <cmath>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

constexpr Index kBlockPairs = 16, kPassPairs = 512;

float rounded(float number) {
  return bf16_to_float(float_to_bf16(number));
}

/// Numbers a[k], b[k] for k < depth: in a pass, block after block, the even ones' chain and the odd ones'.
template <typename Left, typename Right>
float sum_in_tiles(Index depth, const Left& a, const Right& b, Index pass_pairs) {
  float total = 0;
  for (Index pass = 0; pass < depth; pass += 2 * pass_pairs) {
    float sum = 0;
    const Index pass_end = std::min(depth, pass + 2 * pass_pairs);
    for (Index block = pass; block < pass_end; block += 2 * kBlockPairs) {
      float even = 0, odd = 0;
      for (Index k = block; k < std::min(pass_end, block + 2 * kBlockPairs); k += 2) {
        even += rounded(a(k)) * rounded(b(k));
        if (k + 1 < depth) odd += rounded(a(k + 1)) * rounded(b(k + 1));
      }
      sum += even + odd;
    }
    total = pass == 0 ? sum : total + sum;
  }
  return total;
}

struct Shape {
  Index rows, out, in;
};

/// Rows and columns that fill tiles and that do not; depths of less than a block, of odd ends, and of two
/// passes.
constexpr Shape kShapes[] = {{1, 1, 1},     {3, 5, 7},      {16, 32, 32},  {17, 33, 31},
                             {32, 64, 100}, {33, 40, 1057}, {400, 70, 96}, {70, 1030, 64}};

TEST(MatrixTile, AddsUpInTheOrderOfTheInstruction) {
  const DenseKernel kernel = tiled_bf16_dense(Bf16Unit::kTiles);
  for (const auto& [rows, out, in] : kShapes) {
    SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(out) + " x " + std::to_string(in));
    const Matrix x = random_matrix(rows, in, 1), w = random_matrix(out, in, 2),
                 dy = random_matrix(rows, out, 3);
    Matrix y(rows, out), dx(rows, in), dw(out, in);
    kernel.forward(x, w, y, Write::kReplace);
    kernel.input_grad(dy, w, dx, Write::kReplace);
    kernel.weight_grad(dy, x, dw, Write::kReplace);
    Index wrong = 0;
    const auto compare = [&](ConstMatrixView found, Index depth, Index pass, const auto& left,
                             const auto& right) {
      for (Index i = 0; i < found.rows; ++i)
        for (Index j = 0; j < found.cols; ++j)
          wrong += found(i, j) != sum_in_tiles(
                                      depth, [&](Index k) { return left(i, k); },
                                      [&](Index k) { return right(k, j); }, pass);
    };
    const ConstMatrixView a = x, b = w, c = dy;
    compare(
        y, in, kPassPairs, [&](Index i, Index k) { return a(i, k); },
        [&](Index k, Index j) { return b(j, k); });
    EXPECT_EQ(wrong, 0) << "forward";
    compare(
        dx, out, kPassPairs, [&](Index i, Index k) { return c(i, k); },
        [&](Index k, Index j) { return b(k, j); });
    EXPECT_EQ(wrong, 0) << "input gradient";
    compare(
        dw, rows, kSumChunkRows / 2, [&](Index i, Index k) { return c(k, i); },
        [&](Index k, Index j) { return a(k, j); });
    EXPECT_EQ(wrong, 0) << "weight gradient";
  }
}

TEST(MatrixTile, NumbersThatAreNoneStayInTheirRow) {
  const DenseKernel kernel = tiled_bf16_dense(Bf16Unit::kTiles);
  Matrix x = random_matrix(20, 50, 1);
  const Matrix w = random_matrix(30, 50, 2);
  Matrix clean(20, 30), found(20, 30);
  kernel.forward(x, w, clean, Write::kReplace);
  x.view()(7, 49) = std::nanf("1");
  kernel.forward(x, w, found, Write::kReplace);
  for (Index i = 0; i < 20; ++i)
    for (Index j = 0; j < 30; ++j)
      EXPECT_TRUE(i == 7 ? std::isnan(found.view()(i, j)) : found.view()(i, j) == clean.view()(i, j));
}

}  // namespace
}  // namespace moeloom
