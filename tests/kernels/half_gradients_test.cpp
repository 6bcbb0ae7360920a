// Weight gradients that are kept as bf16: the fp32 ones, rounded once.
#include <cmath>
#include <limits>
#include <vector>

#include "grouped_matmul_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Case;
using testing::cases;
using testing::kOurs;
using testing::Problem;

std::vector<std::uint16_t> rounded(ConstMatrixView numbers) {
  std::vector<std::uint16_t> halves;
  for (const float number : numbers.flat()) halves.push_back(float_to_bf16(number));
  return halves;
}

TEST(HalfGradients, AreTheFloatsRoundedOnce) {
  for (const Case& c : cases())
    for (const auto& [name, kernel] : kOurs) {
      SCOPED_TRACE(name);
      SCOPED_TRACE(c);
      Problem p(c);
      std::vector<std::uint16_t> halves = rounded(p.dw), before = halves;
      const Bf16View dw(halves.data(), p.dw.rows(), p.dw.cols());
      kernel.weight_grad(p.dy, p.x, p.rows, p.dw, Write::kReplace);
      kernel.weight_grad(p.dy, p.x, p.rows, dw, Write::kReplace);
      EXPECT_EQ(halves, rounded(p.dw)) << "replaced";

      halves = before;
      kernel.weight_grad(p.dy, p.x, p.rows, dw, Write::kAdd);
      Matrix sums = Matrix::copy_of(p.dw);
      for (Index i = 0; i < sums.view().size(); ++i)
        sums.view().data[i] = bf16_to_float(before[at(i)]) + sums.view().data[i];
      EXPECT_EQ(halves, rounded(sums)) << "added";
    }
}

/// Columns of a larger matrix: lines of bf16 that do not begin where those of memory do.
TEST(HalfGradients, StayInTheirPlace) {
  const Case c = cases().back();
  for (const auto& [name, kernel] : kOurs) {
    SCOPED_TRACE(name);
    Problem p(c);
    constexpr Index kMore = 3;
    constexpr std::uint16_t kUntouched = 0x4049;
    const Index cols = p.dw.cols(), stride = cols + kMore;
    std::vector<std::uint16_t> memory(at(p.dw.rows() * stride), kUntouched);
    Bf16View whole(memory.data(), p.dw.rows(), stride);
    kernel.weight_grad(p.dy, p.x, p.rows, p.dw, Write::kReplace);
    kernel.weight_grad(p.dy, p.x, p.rows, whole.cols_from(1, cols), Write::kReplace);
    for (Index i = 0; i < p.dw.rows(); ++i) {
      for (Index j = 0; j < cols; ++j) ASSERT_EQ(whole(i, 1 + j), float_to_bf16(p.dw.view()(i, j)));
      for (const Index j : {Index{0}, cols + 1, cols + 2}) ASSERT_EQ(whole(i, j), kUntouched);
    }
  }
}

TEST(HalfGradients, OfNumbersThatAreNotFiniteAreNotFinite) {
  const Case c = cases().back();
  for (const auto& [name, kernel] : kOurs) {
    SCOPED_TRACE(name);
    Problem p(c);
    p.dy.row(0)[0] = std::numeric_limits<float>::quiet_NaN();
    std::vector<std::uint16_t> halves(at(p.dw.view().size()));
    const Bf16View dw(halves.data(), p.dw.rows(), p.dw.cols());
    kernel.weight_grad(p.dy, p.x, p.rows, dw, Write::kReplace);
    Index bad = 0;
    for (const std::uint16_t half : halves) bad += std::isnan(bf16_to_float(half)) ? 1 : 0;
    EXPECT_EQ(bad, p.dw.cols()) << "a row of the first group that has rows";
  }
}

}  // namespace
}  // namespace moeloom
