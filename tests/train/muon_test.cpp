#include "train/muon.hpp"

#include "moeloom/base/parallel.hpp"

#include <cmath>

#include "muon_reference.hpp"
#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Doubles, testing::newton_schulz, testing::product, testing::transposed;

TEST(Muon, OrthogonalisesEachMatrixByItsDefinition) {
  struct Case {
    Index groups, m, n;
  };
  for (const auto& [groups, m, n] : {Case{1, 5, 5}, Case{3, 7, 20}, Case{4, 33, 70}, Case{2, 1, 9}}) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
    Matrix x = testing::random_matrix(groups * m, n, 3);
    std::vector<Doubles> expected;
    for (Index group = 0; group < groups; ++group) {
      const auto one = x.view().rows_from(group * m, m).flat();
      expected.push_back(newton_schulz({one.begin(), one.end()}, m, n, 5));
    }
    OrthogonaliseWorkspace workspace;
    orthogonalise(groups, 5, x, workspace);
    for (Index group = 0; group < groups; ++group)
      for (Index i = 0; i < m * n; ++i)
        EXPECT_NEAR(x.row(group * m)[i], expected[at(group)][at(i)], 2e-5) << group << ' ' << i;
  }
}

/// The quintic leaves singular values between 0.7 and 1.2.
TEST(Muon, MakesSingularValuesAboutOne) {
  constexpr Index kRows = 12, kCols = 40;
  Matrix x = testing::random_matrix(kRows, kCols, 9);
  OrthogonaliseWorkspace workspace;
  orthogonalise(1, 5, x, workspace);
  const Doubles o(x.view().flat().begin(), x.view().flat().end());
  const Doubles gram = product(o, transposed(o, kRows, kCols), kRows, kCols, kRows);
  double trace = 0;
  for (Index i = 0; i < kRows; ++i) trace += gram[at(i * kRows + i)];
  EXPECT_GT(trace / kRows, 0.6);
  EXPECT_LT(trace / kRows, 1.3);
}

TEST(Muon, HasTheSameBitsBesideOtherMatricesAndOnAnyNumberOfThreads) {
  Matrix all = testing::random_matrix(3 * 18, 25, 4);
  Matrix alone = Matrix::copy_of(all.view().rows_from(18, 18));
  const int before = threads();
  OrthogonaliseWorkspace workspace;
  set_threads(3);
  orthogonalise(3, 5, all, workspace);
  set_threads(1);
  orthogonalise(1, 5, alone, workspace);
  set_threads(before);
  EXPECT_TRUE(std::ranges::equal(all.view().rows_from(18, 18).flat(), alone.view().flat()));
}

TEST(Muon, ZerosStayZeros) {
  Matrix zeros(6, 8);
  OrthogonaliseWorkspace workspace;
  orthogonalise(2, 5, zeros, workspace);
  for (const float value : zeros.view().flat()) EXPECT_EQ(value, 0);
}

TEST(Muon, ScalesByTheLargerSide) {
  EXPECT_DOUBLE_EQ(muon_scale(100, 25), 2.0);
  EXPECT_DOUBLE_EQ(muon_scale(25, 100), 2.0);
}

}  // namespace
}  // namespace moeloom
