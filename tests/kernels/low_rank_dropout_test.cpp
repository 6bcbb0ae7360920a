// Additions that drop inputs, against the same additions to inputs that were dropped before: bit for bit, so
// that their gradients are those that finite differences hold (low_rank_test.cpp), and against differences of
// their own.
#include "kernels/low_rank.hpp"
#include "moeloom/base/errors.hpp"

#include <cmath>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

constexpr Index kIn = 19, kOut = 12, kRank = 3;

/// An addition to columns [2, 12) of `groups` weights [12, 19], with gradients; of scale s / (1 - p).
struct Addition {
  Matrix a, b, d_a, d_b;
  std::vector<LowRank> parts;

  explicit Addition(Index groups, float scale, const Dropout* dropout = nullptr)
      : a(random_matrix(groups * kRank, kIn, 10)),
        b(random_matrix(groups * 10, kRank, 20)),
        d_a(groups * kRank, kIn),
        d_b(groups * 10, kRank),
        parts{{.column = 2,
               .a = a,
               .b = b,
               .d_a = d_a,
               .d_b = d_b,
               .scale = scale,
               .dropout = dropout,
               .stream = 4}} {}
};

bool equal(ConstMatrixView a, ConstMatrixView b) {
  return std::ranges::equal(a.flat(), b.flat());
}

/// What one run of everything leaves.
struct Results {
  Matrix y, dx;

  explicit Results(Index rows) : y(rows, kOut), dx(rows, kIn) {}
};

constexpr Dropout kHalf{0.5, 11};

/// By keys that are not those of x, as in backward.
std::vector<std::uint64_t> other_keys(Index rows) {
  return row_keys(random_matrix(rows, 5, 77));
}

void expect_same(const Addition& dropped, const Results& got, const Addition& plain, const Results& expected,
                 const InputMask& mask, RowKeys keys) {
  Matrix dx(expected.dx.rows(), kIn);
  mask.add_kept(keys, expected.dx, dx);
  EXPECT_TRUE(equal(got.y, expected.y));
  EXPECT_TRUE(equal(got.dx, dx));
  EXPECT_TRUE(equal(dropped.d_a, plain.d_a));
  EXPECT_TRUE(equal(dropped.d_b, plain.d_b));
  EXPECT_NE(dropped.d_a.view()(0, 0), 0);
}

TEST(LowRankDropout, OfADenseProductReadsDroppedInputs) {
  for (const Index rows : {Index{1}, Index{255}, Index{600}}) {
    SCOPED_TRACE(rows);
    const DenseKernel kernel = tiled_dense();
    const Matrix x = random_matrix(rows, kIn, 1), d = random_matrix(rows, kOut, 2);
    const std::vector<std::uint64_t> keys = other_keys(rows);
    const InputMask mask(kHalf, 4);
    Matrix kept(rows, kIn);
    mask.keep(keys, x, kept.view());
    Addition dropped(1, 3, &kHalf), plain(1, 6);
    Results got(rows), expected(rows);
    add_low_rank(kernel, dropped.parts, x, got.y, keys);
    add_low_rank_input_grad(kernel, dropped.parts, d, got.dx, keys);
    add_low_rank_weight_grads(kernel, dropped.parts, d, x, nullptr, keys);
    add_low_rank(kernel, plain.parts, kept, expected.y);
    add_low_rank_input_grad(kernel, plain.parts, d, expected.dx);
    add_low_rank_weight_grads(kernel, plain.parts, d, kept, nullptr);
    expect_same(dropped, got, plain, expected, mask, keys);
  }
}

TEST(LowRankDropout, OfAGroupedProductReadsDroppedInputs) {
  // Four groups from two sources: rows of several are copied at once, and those of one are too many.
  for (const std::vector<Index>& sources :
       {std::vector<Index>{5, 2, 0, 0, 1, 6, 3, 3}, {300, 500, 0, 0, 900, 700, 0, 4}}) {
    const GroupedRows rows{sources, 2};
    const Index count = rows.total();
    SCOPED_TRACE(count);
    const GroupedMatmulKernel kernel = packed_grouped_matmul();
    const Matrix x = random_matrix(count, kIn, 1), d = random_matrix(count, kOut, 2);
    const std::vector<std::uint64_t> keys = other_keys(count);
    const InputMask mask(kHalf, 4);
    Matrix kept(count, kIn), low, d_low(count, kRank);
    mask.keep(keys, x, kept.view());
    Addition dropped(4, 3, &kHalf), plain(4, 6);
    for (Addition* addition : {&dropped, &plain}) fill(addition->d_a, 5), fill(addition->d_b, 5);
    Results got(count), expected(count);
    add_low_rank(kernel, dropped.parts, x, rows, got.y, low, keys);
    add_low_rank_input_grad(kernel, dropped.parts, d, rows, got.dx, d_low, keys);
    low_rank_weight_grads(kernel, dropped.parts, 4, {0, 4}, d, d_low, x, rows, nullptr, Write::kReplace, low,
                          keys);
    add_low_rank(kernel, plain.parts, kept, rows, expected.y, low);
    add_low_rank_input_grad(kernel, plain.parts, d, rows, expected.dx, d_low);
    low_rank_weight_grads(kernel, plain.parts, 4, {0, 4}, d, d_low, kept, rows, nullptr, Write::kReplace,
                          low);
    expect_same(dropped, got, plain, expected, mask, keys);
    EXPECT_EQ(dropped.d_a.view()(kRank, 0), 0) << "written, for a group without rows";
  }
}

/// Cut by rows forward and for input gradients, by columns for weights, as a group of more rows than are held
/// at once is; beside groups that are not.
TEST(LowRankDropout, OfAGroupOfManyRowsHasTheBitsOfTheWhole) {
  constexpr Index kWide = 600;
  const std::vector<Index> sources = {700, 2300, 3, 0, 0, 0, 40, 1000};
  const GroupedRows rows{sources, 2};
  const Index count = rows.total(), groups = rows.groups();
  ASSERT_LT(dropped_columns(3000, kWide), kWide);
  const Matrix x = random_matrix(count, kWide, 1), d = random_matrix(count, 10, 2);
  const std::vector<std::uint64_t> keys = other_keys(count);
  Matrix kept(count, kWide);
  InputMask(kHalf, 4).keep(keys, x, kept.view());
  for (const GroupedMatmulKernel& kernel :
       {native_grouped_matmul(), packed_grouped_matmul(), packed_bf16_grouped_matmul()})
    for (const bool exact : {false, true}) {
      if (exact && kernel.forward == native_grouped_matmul().forward) continue;
      SCOPED_TRACE(exact ? "exact sums" : "sums");
      Matrix a = random_matrix(groups * kRank, kWide, 10), b = random_matrix(groups * 10, kRank, 20);
      const auto run = [&](const Dropout* dropout, float scale, ConstMatrixView input) {
        Matrix gradients(1, a.view().size() + b.view().size()), y(count, 10), dx(count, kWide);
        ExactSums sums(gradients.view().flat(), 2);
        float* const numbers = gradients.view().data;
        const std::vector<LowRank> parts = {{.a = a,
                                             .b = b,
                                             .d_a = MatrixView(numbers, a.rows(), a.cols()),
                                             .d_b = MatrixView(numbers + a.view().size(), b.rows(), b.cols()),
                                             .scale = scale,
                                             .dropout = dropout,
                                             .stream = 4}};
        Matrix low, d_low(count, kRank);
        const RowKeys keys_of_run = dropout ? RowKeys(keys) : RowKeys();
        add_low_rank(kernel, parts, input, rows, y, low, keys_of_run);
        add_low_rank_input_grad(kernel, parts, d, rows, dx, d_low, keys_of_run);
        low_rank_weight_grads(kernel, parts, groups, {0, groups}, d, d_low, input, rows,
                              exact ? &sums : nullptr, Write::kReplace, low, keys_of_run);
        std::vector<double> all;
        for (const ConstMatrixView m : {y.view(), gradients.view()})
          all.insert(all.end(), m.flat().begin(), m.flat().end());
        if (exact)
          for (const std::int64_t sum : sums.sums()) all.push_back(static_cast<double>(sum));
        if (dropout == nullptr) {
          Matrix masked(count, kWide);
          InputMask(kHalf, 4).add_kept(keys, dx, masked);
          all.insert(all.end(), masked.view().flat().begin(), masked.view().flat().end());
        } else {
          all.insert(all.end(), dx.view().flat().begin(), dx.view().flat().end());
        }
        return all;
      };
      EXPECT_TRUE(run(&kHalf, 3, x) == run(nullptr, 6, kept));
    }
}

TEST(LowRankDropout, HoldsNoMoreThanSomeRowsOrSomeColumns) {
  for (const Index rows : {1, 1024, 1025, 3000, 50000, 4000000})
    for (const Index cols : {1, 24, 256, 600, 2048, 14336}) {
      const Index width = dropped_columns(rows, cols);
      EXPECT_GE(width, 1);
      EXPECT_LE(rows * width, std::max(kDroppedGroupRows * cols, rows * std::min(cols, kGemmColumns)))
          << rows << " x " << cols;
      EXPECT_TRUE(width == cols || width % kGemmColumns == 0);
    }
}

/// <d, y> in double, by central differences, which it is linear in each number for.
TEST(LowRankDropout, HasTheGradientsOfItsForwardForFixedMasks) {
  const Index rows = 14;
  Matrix x = random_matrix(rows, kIn, 1);
  const Matrix d = random_matrix(rows, kOut, 2);
  const std::vector<std::uint64_t> keys = row_keys(x);
  for (const DenseKernel& kernel : {native_dense(), tiled_dense()}) {
    Addition addition(1, 3, &kHalf);
    Matrix dx(rows, kIn);
    add_low_rank_input_grad(kernel, addition.parts, d, dx, keys);
    add_low_rank_weight_grads(kernel, addition.parts, d, x, nullptr, keys);
    const auto loss = [&] {
      Matrix y(rows, kOut);
      add_low_rank(kernel, addition.parts, x, y, keys);
      double sum = 0;
      for (Index i = 0; i < y.view().size(); ++i)
        sum += static_cast<double>(y.view().data[i]) * d.view().data[i];
      return sum;
    };
    const auto expect_gradient = [&](MatrixView numbers, ConstMatrixView gradient) {
      for (Index i = 0; i < numbers.size(); i += 5) {
        float& number = numbers.data[i];
        const float before = number;
        number = before + 1;
        const double above = loss();
        number = before - 1;
        const double below = loss();
        number = before;
        EXPECT_NEAR(gradient.data[i], (above - below) / 2, 1e-3) << i;
      }
    };
    expect_gradient(x, dx);
    expect_gradient(addition.a, addition.d_a);
    expect_gradient(addition.b, addition.d_b);
  }
}

/// The mean over masks is the addition without dropout.
TEST(LowRankDropout, IsTheSameInTheMean) {
  constexpr Index kSeeds = 2000;
  const Matrix x = random_matrix(4, kIn, 1);
  const std::vector<std::uint64_t> keys = row_keys(x);
  Dropout dropout{0.2, 0};
  const Addition dropped(1, 1, &dropout), plain(1, 1);
  Matrix sum(4, kOut), squares(4, kOut), exact(4, kOut);
  add_low_rank(native_dense(), plain.parts, x, exact);
  for (; dropout.seed < kSeeds; ++dropout.seed) {
    Matrix y(4, kOut);
    add_low_rank(native_dense(), dropped.parts, x, y, keys);
    add(y, sum);
    for (float& number : y.view().flat()) number *= number;
    add(y, squares);
  }
  for (Index i = 0; i < sum.view().size(); ++i) {
    const double mean = sum.view().data[i] / kSeeds;
    const double variance = squares.view().data[i] / kSeeds - mean * mean;
    EXPECT_LE(std::abs(mean - exact.view().data[i]), 5 * std::sqrt(variance / kSeeds) + 1e-5) << i;
  }
}

TEST(LowRankDropout, WithoutAShareIsTheAdditionItself) {
  Dropout nothing;
  const Addition addition(1, 3, &nothing), plain(1, 3);
  const Matrix x = random_matrix(30, kIn, 1);
  Matrix y(30, kOut), expected(30, kOut);
  EXPECT_FALSE(drops_inputs(addition.parts));
  add_low_rank(tiled_dense(), addition.parts, x, y);
  add_low_rank(tiled_dense(), plain.parts, x, expected);
  EXPECT_TRUE(equal(y, expected));
  nothing.share = 0.1;
  EXPECT_TRUE(drops_inputs(addition.parts));
  EXPECT_THROW(add_low_rank(tiled_dense(), addition.parts, x, y), ShapeError) << "it needs keys";
}

}  // namespace
}  // namespace moeloom
