#include "kernels/low_rank.hpp"

#include <cmath>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

/// Two additions to columns [1, 5) and [5, 12) of twelve, of `groups` weights [12, 9], with gradients.
struct TwoParts {
  Index groups;
  std::vector<Matrix> matrices;
  std::vector<LowRank> parts;

  explicit TwoParts(Index groups) : groups(groups) {
    const Index rank = 3, in = 9;
    for (const auto& [column, out] : {std::pair<Index, Index>{1, 4}, {5, 7}}) {
      const std::size_t first = matrices.size();
      matrices.push_back(random_matrix(groups * rank, in, 10 + first));
      matrices.push_back(random_matrix(groups * out, rank, 20 + first));
      matrices.emplace_back(groups * rank, in);
      matrices.emplace_back(groups * out, rank);
      parts.push_back({.column = column,
                       .a = matrices[first].view(),
                       .b = matrices[first + 1].view(),
                       .d_a = matrices[first + 2].view(),
                       .d_b = matrices[first + 3].view(),
                       .scale = 0.5f + static_cast<float>(first)});
    }
  }
  TwoParts(const TwoParts&) = delete;
  TwoParts& operator=(const TwoParts&) = delete;

  /// s B A of a group, [12, 9] in double.
  std::vector<double> delta(Index group) const {
    std::vector<double> sum(12 * 9, 0.0);
    for (const LowRank& part : parts) {
      const Index rank = part.a.rows / groups, out = part.b.rows / groups;
      for (Index o = 0; o < out; ++o)
        for (Index i = 0; i < 9; ++i)
          for (Index k = 0; k < rank; ++k)
            sum[at((part.column + o) * 9 + i)] +=
                static_cast<double>(part.scale) * part.b(group * out + o, k) * part.a(group * rank + k, i);
    }
    return sum;
  }
};

/// Group of each row, for 3 groups from 2 sources; the second group has none.
const std::vector<Index> kRowsPerSource = {5, 2, 0, 0, 1, 6};
constexpr Index kRows = 14;
Index group_of(Index row) {
  return row < 7 ? 0 : 2;
}

/// <d, y> where y = x (s B A)^T, in double: what every gradient is one of.
double product(const TwoParts& two, ConstMatrixView x, ConstMatrixView d, bool grouped) {
  double sum = 0;
  for (Index t = 0; t < x.rows; ++t) {
    const std::vector<double> delta = two.delta(grouped ? group_of(t) : 0);
    for (Index o = 0; o < 12; ++o)
      for (Index i = 0; i < 9; ++i)
        sum += static_cast<double>(d(t, o)) * delta[at(o * 9 + i)] * static_cast<double>(x(t, i));
  }
  return sum;
}

/// By central differences of product(), which is linear in every number.
void expect_gradient(const TwoParts& two, ConstMatrixView x, ConstMatrixView d, bool grouped,
                     MatrixView numbers, ConstMatrixView gradient) {
  for (Index i = 0; i < numbers.size(); i += 5) {
    float& number = numbers.data[i];
    const float before = number;
    number = before + 1;
    const double above = product(two, x, d, grouped);
    number = before - 1;
    const double below = product(two, x, d, grouped);
    number = before;
    EXPECT_NEAR(gradient.data[i], (above - below) / 2, 2e-4) << i;
  }
}

void expect_all_gradients(const TwoParts& two, Matrix& x, ConstMatrixView d, ConstMatrixView dx,
                          bool grouped) {
  expect_gradient(two, x, d, grouped, x, dx);
  for (const LowRank& part : two.parts) {
    expect_gradient(two, x, d, grouped, part.a, part.d_a);
    expect_gradient(two, x, d, grouped, part.b, part.d_b);
  }
}

double product_of_outputs(ConstMatrixView y, ConstMatrixView d) {
  double sum = 0;
  for (Index t = 0; t < y.rows; ++t)
    for (Index o = 0; o < y.cols; ++o) sum += static_cast<double>(y(t, o)) * d(t, o);
  return sum;
}

TEST(LowRank, AddsToADenseProductAndHasItsGradients) {
  for (const DenseKernel& kernel : {native_dense(), tiled_dense()}) {
    TwoParts two(1);
    Matrix x = random_matrix(kRows, 9, 1), y(kRows, 12), dx(kRows, 9);
    const Matrix d = random_matrix(kRows, 12, 2);
    add_low_rank(kernel, two.parts, x, y);
    EXPECT_NEAR(product_of_outputs(y, d), product(two, x, d, false), 1e-3);
    for (Index t = 0; t < kRows; ++t) EXPECT_EQ(y.view()(t, 0), 0) << "no part adds to it";
    add_low_rank_input_grad(kernel, two.parts, d, dx);
    add_low_rank_weight_grads(kernel, two.parts, d, x, nullptr);
    expect_all_gradients(two, x, d, dx, false);
  }
}

TEST(LowRank, AddsToAGroupedProductAndHasItsGradients) {
  for (const GroupedMatmulKernel& kernel : {native_grouped_matmul(), packed_grouped_matmul()}) {
    TwoParts two(3);
    const GroupedRows rows{kRowsPerSource, 2};
    Matrix low, d_low(kRows, low_columns(two.parts, 3));
    Matrix x = random_matrix(kRows, 9, 1), y(kRows, 12), dx(kRows, 9);
    const Matrix d = random_matrix(kRows, 12, 2);
    EXPECT_EQ(d_low.cols(), 6);
    add_low_rank(kernel, two.parts, x, rows, y, low);
    EXPECT_NEAR(product_of_outputs(y, d), product(two, x, d, true), 1e-3);
    add_low_rank_input_grad(kernel, two.parts, d, rows, dx, d_low);
    low_rank_weight_grads(kernel, two.parts, 3, {0, 3}, d, d_low, x, rows, nullptr, Write::kReplace, low);
    expect_all_gradients(two, x, d, dx, true);
  }
}

TEST(LowRank, ChunksOfGroupsMakeTheGradientsOfTheWhole) {
  const GroupedMatmulKernel kernel = packed_grouped_matmul();
  TwoParts whole(3), chunked(3);
  Matrix low, d_low(kRows, 6), dx(kRows, 9);
  const Matrix x = random_matrix(kRows, 9, 1), d = random_matrix(kRows, 12, 2);
  add_low_rank_input_grad(kernel, whole.parts, d, {kRowsPerSource, 2}, dx, d_low);
  low_rank_weight_grads(kernel, whole.parts, 3, {0, 3}, d, d_low, x, {kRowsPerSource, 2}, nullptr,
                        Write::kReplace, low);
  const std::span<const Index> counts(kRowsPerSource);
  const auto chunk = [&](const Stretch& held, Index row, std::span<const Index> rows) {
    const auto part = [&](const Matrix& m) { return m.view().rows_from(row, 7); };
    low_rank_weight_grads(kernel, chunked.parts, 3, held, part(d), part(d_low), part(x), {rows, 2}, nullptr,
                          Write::kReplace, low);
  };
  chunk({0, 2}, 0, counts.first(4));
  chunk({2, 3}, 7, counts.subspan(4));
  for (std::size_t m = 0; m < whole.matrices.size(); ++m)
    EXPECT_TRUE(std::ranges::equal(whole.matrices[m].view().flat(), chunked.matrices[m].view().flat())) << m;
}

TEST(LowRank, LeavesOutGradientsThatNobodyTrains) {
  TwoParts two(1);
  two.parts[0].d_a = two.parts[0].d_b = {};
  const Matrix x = random_matrix(kRows, 9, 1), d = random_matrix(kRows, 12, 2);
  add_low_rank_weight_grads(native_dense(), two.parts, d, x, nullptr);
  EXPECT_EQ(two.matrices[2].view()(0, 0), 0);
  EXPECT_NE(two.matrices[6].view()(0, 0), 0);
}

}  // namespace
}  // namespace moeloom
