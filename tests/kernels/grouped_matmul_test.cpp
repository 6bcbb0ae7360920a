#include "moeloom/kernels/grouped_matmul.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "tensor/tree_sum.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "grouped_matmul_testing.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::Case;
using testing::cases;
using testing::kBf16Units;
using testing::kOurs;
using testing::kPacked;
using testing::Problem;
using testing::same_bits;

/// |difference| against the sum of |products|, which bounds what rounding in any order can do: each of n
/// additions is off by at most half an ulp of a partial sum.
struct Exact {
  double value = 0;
  double magnitude = 0;
  void add(double a, double b) {
    value += a * b;
    magnitude += std::fabs(a * b);
  }
  bool near(float result, Index terms) const {
    return std::fabs(result - value) <= 6e-8 * static_cast<double>(terms + 2) * magnitude;
  }
};

/// Wrong elements among y, dx and dw (before + the gradient if `before`), by the definitions in double.
Index wrong_elements(const Case& c, const Problem& p, const Matrix* before = nullptr) {
  Index wrong = 0, first = 0;
  for (Index g = 0; g < c.groups(); ++g) {
    const Index end = first + p.rows.of_group(g);
    const ConstMatrixView w = p.weights().group(g).fp32();
    for (Index r = first; r < end; ++r) {
      for (Index o = 0; o < c.out; ++o) {
        Exact sum;
        for (Index i = 0; i < c.in; ++i) sum.add(p.x.view()(r, i), w(o, i));
        wrong += !sum.near(p.y.view()(r, o), c.in);
      }
      for (Index i = 0; i < c.in; ++i) {
        Exact sum;
        for (Index o = 0; o < c.out; ++o) sum.add(p.dy.view()(r, o), w(o, i));
        wrong += !sum.near(p.dx.view()(r, i), c.out);
      }
    }
    for (Index o = 0; o < c.out; ++o)
      for (Index i = 0; i < c.in; ++i) {
        Exact sum;
        if (before != nullptr) sum.add(before->view()(g * c.out + o, i), 1);
        for (Index r = first; r < end; ++r) sum.add(p.dy.view()(r, o), p.x.view()(r, i));
        wrong += !sum.near(p.dw.view()(g * c.out + o, i), end - first);
      }
    first = end;
  }
  return wrong;
}

TEST(GroupedMatmul, EveryPathEqualsTheDefinitionInDouble) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(c);
    for (const auto& [name, kernel] : kOurs) {
      SCOPED_TRACE(name);
      Problem written(c), added(c);
      if (kernel.element == DType::kBF16) written.round_to_bf16(), added.round_to_bf16();
      const Matrix before = Matrix::copy_of(added.dw);
      written.run(kernel, Write::kReplace);
      added.run(kernel, Write::kAdd);
      EXPECT_EQ(wrong_elements(c, written), 0);
      EXPECT_EQ(wrong_elements(c, added, &before), 0);
    }
  }
}

TEST(GroupedMatmul, Bf16RoundsOperandsToNearestEvenAndNothingElse) {
  for (const Bf16Unit unit : kBf16Units)
    for (const Case& c : cases()) {
      SCOPED_TRACE(c);
      Problem given(c), rounded(c);
      rounded.round_to_bf16();
      given.run(packed_bf16_grouped_matmul(unit), Write::kAdd);
      rounded.run(packed_bf16_grouped_matmul(unit), Write::kAdd);
      EXPECT_TRUE(same_bits(given.y, rounded.y));
      EXPECT_TRUE(same_bits(given.dx, rounded.dx));
      EXPECT_TRUE(same_bits(given.dw, rounded.dw));
    }
}

TEST(GroupedMatmul, RowsThatAreBf16AlreadyGiveTheBitsOfRoundingThem) {
  for (const Bf16Unit unit : kBf16Units)
    for (const bool packs : {false, true})
      for (const Case& c : cases()) {
        SCOPED_TRACE(c);
        GroupedMatmulKernel kernel = packed_bf16_grouped_matmul(unit);
        kernel.uses_packed = packs;
        Problem rounds(c), is_rounded(c);
        rounds.run(kernel, Write::kAdd);
        is_rounded.run_on_bf16_rows(kernel, Write::kAdd);
        EXPECT_TRUE(same_bits(rounds.y, is_rounded.y));
        EXPECT_TRUE(same_bits(rounds.dx, is_rounded.dx));
        EXPECT_TRUE(same_bits(rounds.dw, is_rounded.dw));
      }
}

TEST(GroupedMatmul, RowsThatAreBf16AreRefusedByFp32Products) {
  const Case c{4, 6, {2}};
  for (const GroupedMatmulKernel& kernel : {packed_grouped_matmul(), native_grouped_matmul()})
    EXPECT_THROW(Problem(c).run_on_bf16_rows(kernel), ShapeError);
}

TEST(GroupedMatmul, Bf16RoundsTiesInfinitiesAndNanAsFloatToBf16Does) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<Index> one = {1};
  for (Index in = 1; in <= 40; ++in)  // every place in a vector, and behind the last whole one
    for (const float number :
         {1 + 0x1p-8f, 1 + 0x3p-8f, -1 - 0x1p-8f, 3.4e38f, infinity, -infinity, std::nanf("1")}) {
      const float expected = bf16_to_float(float_to_bf16(number));
      Matrix ones(1, in), one_gradient(1, 1), numbers(1, in), y(1, 1), dx(1, in);
      fill(ones, 1);
      fill(one_gradient, 1);
      numbers.view()(0, in - 1) = number;
      PackedWeights packed;
      packed.pack({numbers, 1}, DType::kBF16);
      PackedWeights packed_ones;
      packed_ones.pack({ones, 1}, DType::kBF16);
      const auto expect = [&](float found) {
        EXPECT_TRUE(found == expected || (found != found && expected != expected))
            << number << " at " << in << " became " << found << ", not " << expected;
      };
      for (const Bf16Unit unit : kBf16Units) {
        const GroupedMatmulKernel kernel = packed_bf16_grouped_matmul(unit);
        kernel.forward({}, packed, ones, {one}, y);
        expect(y.view()(0, 0));
        kernel.input_grad({}, packed, one_gradient, {one}, dx);
        expect(dx.view()(0, in - 1));
        kernel.forward({}, packed_ones, numbers, {one}, y);
        expect(y.view()(0, 0));
      }
    }
}

/// Largest distance of a row from its reference, as a part of the reference's norm.
double worst_row(ConstMatrixView result, ConstMatrixView reference) {
  double worst = 0;
  for (Index i = 0; i < result.rows; ++i) {
    double distance = 0, norm = 0;
    for (Index j = 0; j < result.cols; ++j) {
      distance += std::pow(double{result(i, j)} - reference(i, j), 2);
      norm += std::pow(double{reference(i, j)}, 2);
    }
    if (norm > 0) worst = std::max(worst, std::sqrt(distance / norm));
  }
  return worst;
}

TEST(GroupedMatmul, Bf16EqualsTheLoopToAHundredthOfARowsNorm) {
  // Each product is off by two roundings of 2^-9, at random: a row by 0.3 % however long its sums are.
  for (const Bf16Unit unit : kBf16Units)
    for (const Case& c : cases()) {
      if (c.out < 12 || c.in < 12) continue;  // a row of one sum may cancel to nothing
      SCOPED_TRACE(c);
      Problem bf16(c), loop(c);
      bf16.run(packed_bf16_grouped_matmul(unit));
      loop.run(native_grouped_matmul());
      EXPECT_LE(worst_row(bf16.y, loop.y), 1e-2);
      EXPECT_LE(worst_row(bf16.dx, loop.dx), 1e-2);
      EXPECT_LE(worst_row(bf16.dw, loop.dw), 1e-2);
    }
}

TEST(GroupedMatmul, ARowsBitsDoNotDependOnTheOtherRows) {
  const Index out = 72, in = 1061, most = 199;
  const Case all{out, in, {most}};
  for (const auto& [name, kernel] : kPacked) {
    SCOPED_TRACE(name);
    Problem full(all);
    full.run(kernel);
    PackedWeights packed;
    packed.pack(full.weights(), kernel.element);
    for (Index n = 1; n < most; n += 3) {
      const Index first = most - n;  // other neighbours and another place in the tile
      const std::vector<Index> counts = {n};
      Matrix y(n, out), dx(n, in);
      kernel.forward({}, packed, full.x.view().rows_from(first, n), {counts}, y);
      kernel.input_grad({}, packed, full.dy.view().rows_from(first, n), {counts}, dx);
      EXPECT_TRUE(same_bits(y, full.y.view().rows_from(first, n))) << n << " rows";
      EXPECT_TRUE(same_bits(dx, full.dx.view().rows_from(first, n))) << n << " rows";
      kernel.forward(full.weights(), {}, full.x.view().rows_from(first, n), {counts}, y);
      EXPECT_TRUE(same_bits(y, full.y.view().rows_from(first, n))) << n << " rows of the master";
    }
  }
}

TEST(GroupedMatmul, BitsDoNotDependOnTheNumberOfThreads) {
  const int before = threads();
  for (const Case& c : cases()) {
    SCOPED_TRACE(c);
    for (const auto& [name, kernel] : kOurs) {
      SCOPED_TRACE(name);
      Problem p(c);
      const Matrix dw = Matrix::copy_of(p.dw);
      set_threads(1);
      p.run(kernel, Write::kAdd);
      const Matrix y = Matrix::copy_of(p.y), dx = Matrix::copy_of(p.dx), sum = Matrix::copy_of(p.dw);
      for (const int n : {2, 3, 4}) {
        copy(dw, p.dw);
        set_threads(n);
        p.run(kernel, Write::kAdd);
        EXPECT_TRUE(same_bits(p.y, y)) << n << " threads";
        EXPECT_TRUE(same_bits(p.dx, dx)) << n << " threads";
        EXPECT_TRUE(same_bits(p.dw, sum)) << n << " threads";
      }
    }
  }
  set_threads(before);
}

/// What `sources` ranks that hold their own rows would add up along the tree of ranks.
Matrix tree_sum_of_sources(const GroupedMatmulKernel& kernel, const Case& c, const Problem& p) {
  const Index size = p.dw.rows() * p.dw.cols();
  Matrix contributions(c.sources, size);
  for (Index s = 0; s < c.sources; ++s) {
    std::vector<Index> counts;
    Matrix x(p.x.rows(), c.in), dy(p.x.rows(), c.out);
    Index from = 0, to = 0;
    for (Index g = 0; g < c.groups(); ++g)
      for (Index source = 0; source < c.sources; ++source) {
        const Index n = p.rows.of_source(g, source);
        if (source == s) {
          counts.push_back(n);
          copy(p.x.view().rows_from(from, n), x.view().rows_from(to, n));
          copy(p.dy.view().rows_from(from, n), dy.view().rows_from(to, n));
          to += n;
        }
        from += n;
      }
    kernel.weight_grad(dy.view().rows_from(0, to), x.view().rows_from(0, to), {counts},
                       MatrixView(contributions.row(s), p.dw.rows(), p.dw.cols()), Write::kReplace);
  }
  Matrix sum(p.dw.rows(), p.dw.cols());
  tree_sum_blocks(contributions.row(0), c.sources, size, size, sum.row(0));
  return sum;
}

TEST(GroupedMatmul, WeightGradientsOfManySourcesEqualTheirTreeSumBitForBit) {
  for (const Case& c :
       {Case{72, 530, {3, 0, 4, 1, 0, 0, 0, 0, 270, 300, 0, 2}, 4}, Case{257, 12, {0, 5, 9, 1, 1, 0}, 3},
        Case{20, 520, {0, 0, 0, 0, 6}, 5}, Case{64, 64, {1, 2, 3, 4, 5, 6, 7, 600}, 8}}) {
    SCOPED_TRACE(c);
    for (const auto& [name, kernel] : kOurs) {
      SCOPED_TRACE(name);
      Problem together(c), added(c);
      const Matrix expected = tree_sum_of_sources(kernel, c, together);
      Matrix expected_after = Matrix::copy_of(added.dw);
      add(expected, expected_after);
      together.run(kernel, Write::kReplace);
      added.run(kernel, Write::kAdd);
      EXPECT_TRUE(same_bits(together.dw, expected));
      EXPECT_TRUE(same_bits(added.dw, expected_after));
    }
  }
}

TEST(GroupedMatmul, AWeightGradientsRowsAreAddedInChunks) {
  const Index rows = 601;  // the last chunk is odd
  const Case c{20, 12, {rows}};
  for (const auto& [name, kernel] : kPacked) {
    SCOPED_TRACE(name);
    Problem whole(c);
    whole.run(kernel);
    Matrix in_chunks(c.out, c.in);
    for (Index row = 0; row < rows; row += kSumChunkRows) {
      const Index n = std::min(kSumChunkRows, rows - row);
      const std::vector<Index> counts = {n};
      kernel.weight_grad(whole.dy.view().rows_from(row, n), whole.x.view().rows_from(row, n), {counts},
                         in_chunks, row == 0 ? Write::kReplace : Write::kAdd);
    }
    EXPECT_TRUE(same_bits(whole.dw, in_chunks));
  }
}

TEST(GroupedMatmul, ReadsAndWritesViewsWhoseRowsAreApart) {
  const Case c{20, 12, {5, 0, 9}};
  Problem tight(c);
  tight.run(packed_grouped_matmul());
  Matrix x(14, 30), y(14, 50);
  copy(tight.x, x.view().cols_from(7, 12));
  PackedWeights packed;
  packed.pack(tight.weights());
  packed_grouped_matmul().forward({}, packed, x.view().cols_from(7, 12), tight.rows,
                                  y.view().cols_from(3, 20));
  EXPECT_TRUE(same_bits(Matrix::copy_of(y.view().cols_from(3, 20)), tight.y));
  for (Index r = 0; r < 14; ++r) {
    EXPECT_EQ(y.view()(r, 2), 0) << "wrote before the view";
    EXPECT_EQ(y.view()(r, 23), 0) << "wrote behind the view";
  }
}

TEST(GroupedMatmul, RefusesWhatDoesNotFit) {
  const Case c{20, 12, {5, 9}};
  Problem p(c);
  PackedWeights none, packed;
  packed.pack(p.weights());
  const GroupedMatmulKernel kernel = packed_grouped_matmul();
  const std::vector<Index> fewer = {5, 8}, one_group = {14};
  EXPECT_THROW(kernel.forward(p.weights(), none, p.dy, p.rows, p.y), ShapeError);
  EXPECT_THROW(kernel.forward(p.weights(), none, p.x, {one_group}, p.y), ShapeError);
  EXPECT_THROW(kernel.forward({}, none, p.x, p.rows, p.y), ShapeError);
  EXPECT_THROW(kernel.forward(p.weights(), packed, p.x, {fewer}, p.y), ShapeError);
  EXPECT_THROW(kernel.forward(p.weights(), packed, p.x, {one_group}, p.y), ShapeError);
  EXPECT_THROW(kernel.forward(p.weights(), packed, p.dy, p.rows, p.y), ShapeError);
  EXPECT_THROW(packed_bf16_grouped_matmul().forward(p.weights(), packed, p.x, p.rows, p.y), ShapeError);
  EXPECT_THROW(kernel.weight_grad(p.dy, p.x, {fewer}, p.dw, Write::kReplace), ShapeError);
  EXPECT_THROW(native_grouped_matmul().weight_grad(p.dy, p.x, {fewer}, p.dw, Write::kReplace), ShapeError);
}

TEST(GroupedMatmul, AWeightGradientOfNoColumnsIsNothing) {
  const std::vector<Index> counts = {3, 2};
  Matrix none(5, 0), some(5, 12), flat(0, 12), thin(24, 0);
  packed_grouped_matmul().weight_grad(none, some, {counts}, flat, Write::kReplace);
  packed_grouped_matmul().weight_grad(some, none, {counts}, thin, Write::kReplace);
  EXPECT_EQ(flat.rows() * thin.cols(), 0);
}

}  // namespace
}  // namespace moeloom
