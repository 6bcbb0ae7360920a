#include "moeloom/tensor/gemm.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/base/random.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <cblas.h>
#include <gtest/gtest.h>

namespace moeloom {
namespace {

Matrix random_matrix(Index rows, Index cols, std::uint64_t stream) {
  Matrix m(rows, cols);
  const CounterRandom random(41, stream);
  for (Index i = 0; i < rows * cols; ++i)
    m.view().flat()[static_cast<std::size_t>(i)] =
        static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
  return m;
}

/// Element (i, j) of op(a) op(b) in double, and the sum of magnitudes that bounds its rounding.
struct Product {
  double value = 0;
  double magnitude = 0;
};
template <typename LeftAt, typename RightAt>
Product product(Index depth, LeftAt left, RightAt right) {
  Product sum;
  for (Index k = 0; k < depth; ++k) {
    const double term = static_cast<double>(left(k)) * static_cast<double>(right(k));
    sum.value += term;
    sum.magnitude += std::abs(term);
  }
  return sum;
}

/// `depth` products and sums, each rounded once in fp32 in the worst case, and the old value added once.
void expect_near(float got, const Product& expected, double old, Index depth) {
  const double bound =
      (static_cast<double>(depth) + 2) * 0x1p-24 * (expected.magnitude + std::abs(old)) + 1e-30;
  ASSERT_NEAR(got, expected.value + old, bound);
}

struct Shape {
  Index rows, in, out;
};
const Shape kShapes[] = {{0, 5, 7},     {1, 1, 1},     {1, 33, 9},     {7, 20, 12},
                         {256, 16, 24}, {257, 9, 300}, {700, 24, 513}, {64, 1, 40}};

class Gemm : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_threads(GetParam()); }
  void TearDown() override { set_threads(before_); }

 private:
  int before_ = threads();
};

TEST_P(Gemm, MatmulAgreesWithLoopsInDouble) {
  for (const auto& [rows, in, out] : kShapes) {
    const Matrix x = random_matrix(rows, in, 1), w = random_matrix(out, in, 2);
    Matrix y = random_matrix(rows, out, 3);
    const Matrix old = Matrix::copy_of(y);
    matmul(x, w, y, Write::kAdd);
    Matrix replaced = random_matrix(rows, out, 4);
    matmul(x, w, replaced);
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < out; ++j) {
        const Product sum = product(
            in, [&](Index k) { return x.view()(i, k); }, [&](Index k) { return w.view()(j, k); });
        expect_near(y.view()(i, j), sum, old.view()(i, j), in);
        expect_near(replaced.view()(i, j), sum, 0.0, in);
      }
  }
}

TEST_P(Gemm, InputGradAgreesWithLoopsInDouble) {
  for (const auto& [rows, in, out] : kShapes) {
    const Matrix dy = random_matrix(rows, out, 5), w = random_matrix(out, in, 6);
    Matrix dx = random_matrix(rows, in, 7);
    const Matrix old = Matrix::copy_of(dx);
    matmul_input_grad(dy, w, dx, Write::kAdd);
    Matrix replaced = random_matrix(rows, in, 8);
    matmul_input_grad(dy, w, replaced);
    for (Index i = 0; i < rows; ++i)
      for (Index j = 0; j < in; ++j) {
        const Product sum = product(
            out, [&](Index k) { return dy.view()(i, k); }, [&](Index k) { return w.view()(k, j); });
        expect_near(dx.view()(i, j), sum, old.view()(i, j), out);
        expect_near(replaced.view()(i, j), sum, 0.0, out);
      }
  }
}

TEST_P(Gemm, WeightGradAgreesWithLoopsInDouble) {
  for (const auto& [rows, in, out] : kShapes) {
    const Matrix dy = random_matrix(rows, out, 9), x = random_matrix(rows, in, 10);
    Matrix dw = random_matrix(out, in, 11);
    const Matrix old = Matrix::copy_of(dw);
    matmul_weight_grad(dy, x, dw);
    Matrix replaced = random_matrix(out, in, 12);
    matmul_weight_grad(dy, x, replaced, Write::kReplace);
    for (Index i = 0; i < out; ++i)
      for (Index j = 0; j < in; ++j) {
        const Product sum = product(
            rows, [&](Index k) { return dy.view()(k, i); }, [&](Index k) { return x.view()(k, j); });
        expect_near(dw.view()(i, j), sum, old.view()(i, j), rows);
        expect_near(replaced.view()(i, j), sum, 0.0, rows);
      }
  }
}

TEST_P(Gemm, WeightGradAddsChunksOfRowsInOrder) {
  const Matrix dy = random_matrix(700, 40, 13), x = random_matrix(700, 24, 14);
  Matrix whole = random_matrix(40, 24, 15);
  Matrix in_parts = Matrix::copy_of(whole);
  matmul_weight_grad(dy, x, whole);
  for (Index row = 0; row < 700; row += kSumChunkRows) {
    const Index rows = std::min(kSumChunkRows, 700 - row);
    matmul_weight_grad(dy.view().rows_from(row, rows), x.view().rows_from(row, rows), in_parts);
  }
  EXPECT_EQ(std::memcmp(whole.row(0), in_parts.row(0), 40 * 24 * sizeof(float)), 0);
}

TEST_P(Gemm, ReadsAndWritesPartsOfLargerMatrices) {
  const Matrix x = random_matrix(9, 30, 16), w = random_matrix(11, 30, 17);
  Matrix y(9, 20);
  fill(y, 5.0f);
  matmul(x.view().cols_from(4, 13), w.view().cols_from(9, 13), y.view().cols_from(2, 11));
  for (Index i = 0; i < 9; ++i) {
    for (Index j = 0; j < 11; ++j)
      expect_near(
          y.view()(i, 2 + j),
          product(
              13, [&](Index k) { return x.view()(i, 4 + k); }, [&](Index k) { return w.view()(j, 9 + k); }),
          0.0, 13);
    for (const Index j : {0, 1, 13, 19}) ASSERT_EQ(y.view()(i, j), 5.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, Gemm, ::testing::Values(1, 3));

TEST(GemmBits, DoNotDependOnTheNumberOfThreads) {
  const int before = threads();
  for (const auto& [rows, in, out] : kShapes) {
    const Matrix x = random_matrix(rows, in, 18), w = random_matrix(out, in, 19),
                 dy = random_matrix(rows, out, 20);
    std::vector<Matrix> results;
    for (const int team : {1, 3}) {
      set_threads(team);
      matmul(x, w, results.emplace_back(rows, out));
      matmul_input_grad(dy, w, results.emplace_back(rows, in));
      matmul_weight_grad(dy, x, results.emplace_back(out, in));
    }
    for (std::size_t i = 0; i < 3; ++i)
      EXPECT_EQ(std::memcmp(results[i].row(0), results[i + 3].row(0),
                            static_cast<std::size_t>(results[i].view().size()) * sizeof(float)),
                0)
          << "product " << i << " of " << rows << " rows, " << in << " -> " << out;
  }
  set_threads(before);
}

/// What a pool of ranks relies on, each of which multiplies some of the parts.
TEST(GemmBits, OfPartsCutAtTheirMultiplesAreThoseOfTheWhole) {
  constexpr Index kRows = 2 * kGemmRows + 33, kIn = 3 * kGemmColumns + 17, kOut = 70;
  const Matrix x = random_matrix(kRows, kIn, 1), w = random_matrix(kOut, kIn, 2),
               dy = random_matrix(kRows, kOut, 3);
  const auto rows_of = [](const Matrix& m, Index begin) {
    return m.view().rows_from(begin, std::min(kGemmRows, kRows - begin));
  };
  Matrix y(kRows, kOut), y_parts(kRows, kOut), dx(kRows, kIn), dx_parts(kRows, kIn);
  matmul(x, w, y);
  matmul_input_grad(dy, w, dx);
  for (Index begin = 0; begin < kRows; begin += kGemmRows) {
    const Index count = std::min(kGemmRows, kRows - begin);
    matmul(rows_of(x, begin), w, y_parts.view().rows_from(begin, count));
    matmul_input_grad(rows_of(dy, begin), w, dx_parts.view().rows_from(begin, count));
  }
  Matrix dw(kOut, kIn), dw_parts(kOut, kIn);
  matmul_weight_grad(dy, x, dw);
  for (const auto& [begin, count] :
       {std::pair<Index, Index>{0, kGemmColumns}, {kGemmColumns, kIn - kGemmColumns}})
    matmul_weight_grad(dy, x.view().cols_from(begin, count), dw_parts.view().cols_from(begin, count));
  const auto same = [](const Matrix& a, const Matrix& b) {
    return std::memcmp(a.row(0), b.row(0), a.view().flat().size_bytes()) == 0;
  };
  EXPECT_TRUE(same(y, y_parts));
  EXPECT_TRUE(same(dx, dx_parts));
  EXPECT_TRUE(same(dw, dw_parts));
}

TEST(GemmSerial, HandlesEveryTransposeAndScale) {
  const Index rows = 5, depth = 7, cols = 4;
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true}) {
      const Matrix a = transpose_a ? random_matrix(depth, rows, 21) : random_matrix(rows, depth, 21);
      const Matrix b = transpose_b ? random_matrix(cols, depth, 22) : random_matrix(depth, cols, 22);
      Matrix c = random_matrix(rows, cols, 23);
      const Matrix old = Matrix::copy_of(c);
      gemm_serial(a, b, c,
                  {.transpose_a = transpose_a, .transpose_b = transpose_b, .alpha = 2.0f, .beta = -0.5f});
      for (Index i = 0; i < rows; ++i)
        for (Index j = 0; j < cols; ++j)
          expect_near(
              c.view()(i, j),
              product(
                  depth, [&](Index k) { return 2.0f * (transpose_a ? a.view()(k, i) : a.view()(i, k)); },
                  [&](Index k) { return transpose_b ? b.view()(j, k) : b.view()(k, j); }),
              -0.5 * old.view()(i, j), depth);
    }
}

TEST(GemmSerial, WithoutDepthOnlyScales) {
  const Matrix a(3, 0), b(0, 2);
  Matrix c = random_matrix(3, 2, 24);
  gemm_serial(a, b, c, {});
  for (const float x : c.view().flat()) EXPECT_EQ(x, 0.0f);
}

TEST(GemmShapes, AreCheckedAtTheDoor) {
  Matrix x(3, 4), w(5, 4), y(3, 5), wrong(3, 6), fewer(2, 5);
  EXPECT_THROW(matmul(x, w, wrong), ShapeError);
  EXPECT_THROW(matmul(x, wrong, y), ShapeError);
  EXPECT_THROW(matmul(x, w, fewer), ShapeError);
  EXPECT_THROW(matmul_input_grad(wrong, w, x), ShapeError);
  EXPECT_THROW(matmul_weight_grad(fewer, x, w), ShapeError);
  EXPECT_THROW(matmul_weight_grad(y, x, wrong), ShapeError);
  EXPECT_THROW(matmul_input_grad(fewer, w, x), ShapeError);
  const Matrix none(0, 4);
  EXPECT_THROW(matmul(none, w, y), ShapeError);
}

TEST(Gemm, LeavesTheThreadsOfBlasAndOfTheCallerAsTheyWere) {
  const int before = openblas_get_num_threads(), team = threads();
  openblas_set_num_threads(3);
  const int asked = openblas_get_num_threads();  // 3, unless the library was built for fewer
  const Matrix x(300, 8), w(8, 8);
  Matrix y(300, 8);
  matmul(x, w, y);
  EXPECT_EQ(openblas_get_num_threads(), asked);
  EXPECT_EQ(threads(), team);
  openblas_set_num_threads(before);
}

}  // namespace
}  // namespace moeloom
