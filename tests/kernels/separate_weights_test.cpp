// Grouped matmul on a list of matrices, one an expert, instead of one stack.
#include "moeloom/base/errors.hpp"

#include <algorithm>
#include <deque>
#include <span>

#include "grouped_matmul_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Case;
using testing::cases;
using testing::Problem;

/// Experts that own their weights, in memory of their own and in another order than their numbers.
struct Separate {
  explicit Separate(const Problem& p) {
    const Index groups = p.rows.groups();
    for (Index g = 0; g < groups; ++g) {
      weights.push_front(Matrix::copy_of(p.weights().group(groups - 1 - g).fp32()));
      gradients.push_front(Matrix(p.weights().out(), p.weights().in()));
    }
    for (const Matrix& w : weights) weight_views.push_back(w);
    for (Matrix& dw : gradients) gradient_views.push_back(dw);
  }
  std::deque<Matrix> weights, gradients;
  std::vector<ConstMatrixView> weight_views;
  std::vector<MatrixView> gradient_views;
};

TEST(SeparateWeights, GiveTheBitsOfStackedOnes) {
  for (const Case& c : cases())
    for (const GroupedMatmulKernel& kernel :
         {native_grouped_matmul(), packed_grouped_matmul(), packed_bf16_grouped_matmul(Bf16Unit::kPairs),
          packed_bf16_grouped_matmul(Bf16Unit::kTiles)}) {
      SCOPED_TRACE(c);
      Problem stacked(c), lists(c);
      stacked.run(kernel);
      Separate own(lists);
      const auto weights = GroupedWeights::list(own.weight_views);
      PackedWeights packed;
      if (kernel.uses_packed) packed.pack(weights, kernel.element);
      kernel.forward(weights, packed, lists.x, lists.rows, lists.y);
      kernel.input_grad(weights, packed, lists.dy, lists.rows, lists.dx);
      const GroupedGradients gradients(std::span<const MatrixView>(own.gradient_views));
      kernel.weight_grad(lists.dy, lists.x, lists.rows,
                         c.groups() == 0 ? GroupedGradients(lists.dw) : gradients, Write::kReplace);
      EXPECT_TRUE(std::ranges::equal(stacked.y.view().flat(), lists.y.view().flat()));
      EXPECT_TRUE(std::ranges::equal(stacked.dx.view().flat(), lists.dx.view().flat()));
      for (Index g = 0; g < c.groups(); ++g)
        EXPECT_TRUE(std::ranges::equal(stacked.dw.view().rows_from(g * c.out, c.out).flat(),
                                       own.gradient_views[static_cast<std::size_t>(g)].flat()))
            << "group " << g;
    }
}

TEST(SeparateWeights, OfDifferentShapesAreRefused) {
  const Matrix a(4, 6), b(4, 5);
  const std::vector<ConstMatrixView> uneven = {a, b};
  PackedWeights packed;
  EXPECT_THROW(packed.pack(GroupedWeights::list(uneven)), ShapeError);
  const Case shape{4, 6, {2, 1}};  // whose rows the problem looks at
  Problem p(shape);
  Matrix first(4, 6), second(4, 5);
  const std::vector<MatrixView> gradients = {first, second};
  for (const auto& kernel : {native_grouped_matmul(), packed_grouped_matmul()})
    EXPECT_THROW(
        kernel.weight_grad(p.dy, p.x, p.rows, GroupedGradients(std::span<const MatrixView>(gradients)),
                           Write::kReplace),
        ShapeError);
}

}  // namespace
}  // namespace moeloom
