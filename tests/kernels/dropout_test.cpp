#include "kernels/dropout.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

/// The 0/1 masks themselves.
Matrix masks(const InputMask& mask, RowKeys keys, Index cols) {
  Matrix ones(std::ssize(keys), cols), kept(std::ssize(keys), cols);
  fill(ones, 1);
  mask.keep(keys, ones, kept.view());
  return kept;
}

double mean(ConstMatrixView x) {
  double sum = 0;
  for (const float number : x.flat()) sum += number;
  return sum / static_cast<double>(x.size());
}

TEST(Dropout, LeavesOutTheShareThatWasAskedFor) {
  const Index rows = 500, cols = 400;
  const std::vector<std::uint64_t> keys = row_keys(random_matrix(rows, 8, 1));
  for (const double share : {0.0, 0.05, 0.3, 0.5, 0.95}) {
    const double kept = mean(masks({{share, 7}, 1}, keys, cols));
    const double deviation = std::sqrt(share * (1 - share) / (rows * cols));
    EXPECT_LE(std::abs(kept - (1 - share)), 4 * deviation) << share;
  }
}

/// Of each element, not of all together alone.
TEST(Dropout, KeepsEachElementAsOftenOverSeeds) {
  constexpr Index kSeeds = 4000;
  const std::vector<std::uint64_t> keys = row_keys(random_matrix(3, 8, 1));
  Matrix sum(3, 40);
  for (Index seed = 0; seed < kSeeds; ++seed) add(masks({{0.25, at(seed)}, 1}, keys, 40), sum);
  for (const float kept : sum.view().flat())
    EXPECT_NEAR(kept / kSeeds, 0.75, 5 * std::sqrt(0.25 * 0.75 / kSeeds));
}

/// As often alike as chance has it.
TEST(Dropout, DrawsOtherMasksForOtherSeedsStreamsRowsAndColumns) {
  const Index rows = 300, cols = 300;
  const std::vector<std::uint64_t> keys = row_keys(random_matrix(rows, 8, 1));
  const std::vector<std::uint64_t> others = row_keys(random_matrix(rows, 8, 2));
  const Matrix one = masks({{0.5, 7}, 1}, keys, cols);
  const auto expect_apart = [&](ConstMatrixView a, ConstMatrixView b) {
    Index alike = 0;
    for (Index i = 0; i < a.rows; ++i)
      for (Index j = 0; j < a.cols; ++j) alike += a(i, j) == b(i, j) ? 1 : 0;
    const auto count = static_cast<double>(a.size());
    EXPECT_LE(std::abs(static_cast<double>(alike) / count - 0.5), 4 * std::sqrt(0.25 / count));
  };
  expect_apart(one, masks({{0.5, 8}, 1}, keys, cols));
  expect_apart(one, masks({{0.5, 7}, 2}, keys, cols));
  expect_apart(one, masks({{0.5, 7}, 1}, others, cols));
  expect_apart(one.view().cols_from(0, cols - 1), one.view().cols_from(1, cols - 1));
  expect_apart(one.view().rows_from(0, rows - 1), one.view().rows_from(1, rows - 1));
}

TEST(Dropout, MasksOfARowAreItsOwnWhoeverElseIsThereAndOnAnyThreads) {
  Matrix x = random_matrix(90, 33, 1);
  std::ranges::copy(x.view().rows_from(5, 1).flat(), x.row(70));
  const InputMask mask({0.4, 3}, 9);
  const std::vector<std::uint64_t> keys = row_keys(x);
  Matrix whole(90, 33), part(20, 33);
  mask.keep(keys, x, whole.view());
  EXPECT_EQ(keys[5], keys[70]);
  EXPECT_TRUE(std::ranges::equal(whole.view().rows_from(5, 1).flat(), whole.view().rows_from(70, 1).flat()));
  const int before = threads();
  for (const int count : {1, 3}) {
    set_threads(count);
    const ConstMatrixView some = x.view().rows_from(60, 20);
    mask.keep(row_keys(some), some, part.view());
    EXPECT_TRUE(std::ranges::equal(part.view().flat(), whole.view().rows_from(60, 20).flat()));
  }
  set_threads(before);
}

TEST(Dropout, KeepsNumbersAsTheyAreAndWritesZerosForTheRest) {
  Matrix x = random_matrix(40, 31, 1);
  RowMemory halves, kept_halves;
  const ConstRows rounded = testing::as_bf16(x, halves);
  const std::vector<std::uint64_t> keys = row_keys(x);
  EXPECT_NE(keys, row_keys(rounded)) << "of the bytes as they stand";
  const InputMask mask({0.4, 3}, 9);
  const Matrix ones = masks(mask, keys, 31);
  Matrix kept(40, 31), sum = random_matrix(40, 31, 2), wide;
  const Matrix before = Matrix::copy_of(sum);
  x.view()(1, 1) = std::numeric_limits<float>::infinity();  // and not infinity times 0
  mask.keep(keys, x, kept.view());
  mask.add_kept(keys, x, sum);
  mask.keep(keys, rounded, kept_halves.reshape_uninitialised(DType::kBF16, 40, 31));
  const ConstMatrixView kept_rounded = std::as_const(kept_halves).rows().widened(wide);
  Matrix widened;
  const ConstMatrixView all_rounded = rounded.widened(widened);
  for (Index i = 0; i < 40; ++i)
    for (Index j = 0; j < 31; ++j) {
      const bool is_kept = ones.view()(i, j) == 1;
      EXPECT_EQ(kept.view()(i, j), is_kept ? x.view()(i, j) : 0);
      EXPECT_EQ(kept_rounded(i, j), is_kept ? all_rounded(i, j) : 0);
      EXPECT_EQ(sum.view()(i, j), is_kept ? before.view()(i, j) + x.view()(i, j) : before.view()(i, j));
    }
}

TEST(Dropout, RefusesWhatFitsNothing) {
  EXPECT_THROW(InputMask({1, 3}, 9), ShapeError);
  EXPECT_THROW(InputMask({-0.1, 3}, 9), ShapeError);
  const Matrix x = random_matrix(4, 3, 1);
  Matrix kept(4, 3);
  const std::vector<std::uint64_t> keys(3);
  EXPECT_THROW(InputMask({0.5, 3}, 9).keep(keys, x, kept.view()), ShapeError);
  EXPECT_THROW(InputMask({0.5, 3}, 9).add_kept(keys, x, kept), ShapeError);
  RowMemory halves;
  EXPECT_THROW(InputMask({0.5, 3}, 9).keep(row_keys(x), x, halves.reshape_uninitialised(DType::kBF16, 4, 3)),
               ShapeError);
}

}  // namespace
}  // namespace moeloom
