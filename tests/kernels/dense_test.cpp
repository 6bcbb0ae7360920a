#include "moeloom/kernels/dense.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"

#include <cmath>
#include <cstring>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::as_bf16;
using testing::random_matrix;

struct Case {
  Index rows, out, in;
};
const std::vector<Case> kCases = {{0, 5, 7},     {1, 1, 1},      {3, 17, 20},     {97, 33, 530},
                                  {300, 72, 48}, {31, 40, 2100}, {513, 20, 1061}, {257, 260, 12}};

/// What a product starts from and makes; results start as numbers, so that adding can be seen.
struct Problem {
  explicit Problem(const Case& c)
      : x(random_matrix(c.rows, c.in, 1)),
        w(random_matrix(c.out, c.in, 2)),
        dy(random_matrix(c.rows, c.out, 3)),
        y(random_matrix(c.rows, c.out, 4)),
        dx(random_matrix(c.rows, c.in, 5)),
        dw(random_matrix(c.out, c.in, 6)) {}
  void run(const DenseKernel& kernel, Write mode) {
    kernel.forward(x, w, y, mode);
    kernel.input_grad(dy, w, dx, mode);
    kernel.weight_grad(dy, x, dw, mode);
  }
  Matrix x, w, dy, y, dx, dw;
};

double largest(ConstMatrixView m) {
  double most = 0;
  for (Index i = 0; i < m.rows; ++i)
    for (Index j = 0; j < m.cols; ++j) most = std::max<double>(most, std::fabs(m(i, j)));
  return most;
}

double distance(ConstMatrixView a, ConstMatrixView b) {
  double most = 0;
  for (Index i = 0; i < a.rows; ++i)
    for (Index j = 0; j < a.cols; ++j) most = std::max<double>(most, std::fabs(a(i, j) - b(i, j)));
  return most / (largest(b) + 0.1);
}

bool same_bits(ConstMatrixView a, ConstMatrixView b) {
  return a.size() == 0 || std::memcmp(a.data, b.data, a.flat().size_bytes()) == 0;
}

TEST(Dense, TilesEqualOpenBlasWrittenAndAdded) {
  for (const Case& c : kCases)
    for (const Write mode : {Write::kReplace, Write::kAdd}) {
      SCOPED_TRACE(std::to_string(c.rows) + " rows, " + std::to_string(c.out) + " x " + std::to_string(c.in));
      Problem tiled(c), native(c), bf16(c);
      tiled.run(tiled_dense(), mode);
      native.run(native_dense(), mode);
      bf16.run(tiled_bf16_dense(), mode);
      for (Matrix Problem::*result : {&Problem::y, &Problem::dx, &Problem::dw}) {
        EXPECT_LE(distance(tiled.*result, native.*result), 1e-5);
        EXPECT_LE(distance(bf16.*result, native.*result), 2e-2);
        if (c.in > 16 && c.rows > 16) {
          EXPECT_GT(distance(bf16.*result, native.*result), 1e-5) << "not bf16";
        }
      }
    }
}

TEST(Dense, ARowsBitsDependNeitherOnTheOtherRowsNorOnThreads) {
  const Case c{513, 72, 2100};
  const Problem before(c);
  for (const Write mode : {Write::kReplace, Write::kAdd}) {
    Problem whole(c);
    whole.run(tiled_dense(), mode);
    for (Index rows = 1; rows <= 100; ++rows) {
      Matrix y = Matrix::copy_of(before.y.view().rows_from(301, rows));
      tiled_dense().forward(whole.x.view().rows_from(301, rows), whole.w, y, mode);
      EXPECT_TRUE(same_bits(y, whole.y.view().rows_from(301, rows))) << rows << " rows";
    }
  }
  Problem whole(c);
  whole.run(tiled_dense(), Write::kReplace);
  const int used = threads();
  for (const int n : {2, 3}) {
    set_threads(n);
    Problem again(c);
    again.run(tiled_dense(), Write::kReplace);
    EXPECT_TRUE(same_bits(again.y, whole.y));
    EXPECT_TRUE(same_bits(again.dx, whole.dx));
    EXPECT_TRUE(same_bits(again.dw, whole.dw));
  }
  set_threads(used);
}

TEST(Dense, RowsThatAreBf16AlreadyGiveTheBitsOfRoundingThem) {
  const DenseKernel kernel = tiled_bf16_dense();
  EXPECT_EQ(kernel.element, DType::kBF16);
  for (const Case& c : kCases) {
    SCOPED_TRACE(std::to_string(c.rows) + " rows, " + std::to_string(c.out) + " x " + std::to_string(c.in));
    Problem rounds(c), is_rounded(c);
    rounds.run(kernel, Write::kAdd);
    RowMemory x_memory, dy_memory;
    const ConstRows x = as_bf16(is_rounded.x, x_memory), dy = as_bf16(is_rounded.dy, dy_memory);
    kernel.forward(x, is_rounded.w, is_rounded.y, Write::kAdd);
    kernel.input_grad(dy, is_rounded.w, is_rounded.dx, Write::kAdd);
    kernel.weight_grad(dy, x, is_rounded.dw, Write::kAdd);
    EXPECT_TRUE(same_bits(rounds.y, is_rounded.y));
    EXPECT_TRUE(same_bits(rounds.dx, is_rounded.dx));
    EXPECT_TRUE(same_bits(rounds.dw, is_rounded.dw));
    for (const DenseKernel& fp32 : {tiled_dense(), native_dense()})
      EXPECT_THROW(fp32.forward(x, is_rounded.w, is_rounded.y, Write::kReplace), ShapeError);
  }
}

TEST(Dense, RefusesWhatDoesNotFit) {
  Problem p({9, 20, 12});
  for (const DenseKernel& kernel : {tiled_dense(), native_dense()}) {
    EXPECT_THROW(kernel.forward(p.dy, p.w, p.y, Write::kReplace), ShapeError);
    EXPECT_THROW(kernel.forward(p.x.view().rows_from(0, 8), p.w, p.y, Write::kReplace), ShapeError);
    EXPECT_THROW(kernel.input_grad(p.x, p.w, p.dx, Write::kReplace), ShapeError);
    EXPECT_THROW(kernel.weight_grad(p.dy, p.x.view().rows_from(0, 8), p.dw, Write::kReplace), ShapeError);
  }
}

}  // namespace
}  // namespace moeloom
