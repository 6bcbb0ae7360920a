#include "moeloom/kernels/grouped_matmul.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/tensor/tree_sum.hpp"

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "support/random_matrix.hpp"
#include <gtest/gtest.h>

namespace moeloom {
namespace {

using testing::random_matrix;

struct Case {
  Index out;
  Index in;
  std::vector<Index> rows;  // a group's rows by source, group after group
  Index sources = 1;
  GroupedRows grouped() const { return {rows, sources}; }
  Index groups() const { return grouped().groups(); }
};

std::ostream& operator<<(std::ostream& stream, const Case& c) {
  stream << "out " << c.out << ", in " << c.in << ", sources " << c.sources << ", rows";
  for (const Index n : c.rows) stream << ' ' << n;
  return stream;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const std::vector<std::vector<Index>> routings = {{0, 0, 0},  {1, 0, 0},    {0, 97, 0},
                                                    {5, 64, 2}, {13, 0, 199}, {300, 1, 31}};
  for (const auto& [out, in] : std::vector<std::pair<Index, Index>>{
           {20, 12}, {1, 1}, {1, 17}, {17, 1}, {72, 20}, {12, 72}, {40, 768}, {768, 17}, {260, 520}})
    for (const auto& routing : routings) all.push_back({out, in, routing});
  all.push_back({33, 20, {}});
  all.push_back({33, 20, {7}});
  all.push_back({72, 530, {3, 0, 4, 1, 0, 0, 0, 0, 270, 300, 0, 2}, 4});
  all.push_back({257, 12, {0, 5, 9, 1, 1, 0}, 3});
  return all;
}

/// Operands and results of one case; results start as `before`.
struct Problem {
  explicit Problem(const Case& c)
      : rows(c.grouped()),
        masters(random_matrix(c.groups() * c.out, c.in, 1)),
        x(random_matrix(rows.total(), c.in, 2)),
        dy(random_matrix(rows.total(), c.out, 3)),
        y(rows.total(), c.out),
        dx(rows.total(), c.in),
        dw(Matrix::copy_of(random_matrix(c.groups() * c.out, c.in, 4))) {}

  GroupedWeights weights() const { return {masters, rows.groups()}; }

  void run(const GroupedMatmulKernel& kernel, Write mode = Write::kReplace) {
    PackedWeights packed;
    if (kernel.uses_packed) packed.pack(weights());
    kernel.forward(weights(), packed, x, rows, y);
    kernel.input_grad(weights(), packed, dy, rows, dx);
    kernel.weight_grad(dy, x, rows, dw, mode);
  }

  GroupedRows rows;
  Matrix masters, x, dy, y, dx, dw;
};

bool same_bits(ConstMatrixView a, ConstMatrixView b) {
  return a.size() == 0 || std::memcmp(a.data, b.data, a.flat().size_bytes()) == 0;
}

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
    const ConstMatrixView w = p.weights().group(g);
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
    for (const auto& [name, kernel] :
         {std::pair{"native", native_grouped_matmul()}, std::pair{"packed", packed_grouped_matmul()},
          std::pair{"onednn", onednn_grouped_matmul()}}) {
      SCOPED_TRACE(name);
      Problem written(c), added(c);
      const Matrix before = Matrix::copy_of(added.dw);
      written.run(kernel, Write::kReplace);
      added.run(kernel, Write::kAdd);
      EXPECT_EQ(wrong_elements(c, written), 0);
      EXPECT_EQ(wrong_elements(c, added, &before), 0);
    }
  }
}

TEST(GroupedMatmul, ARowsBitsDoNotDependOnTheOtherRows) {
  const Index out = 72, in = 530, most = 199;
  const Case all{out, in, {most}};
  Problem full(all);
  full.run(packed_grouped_matmul());
  PackedWeights packed;
  packed.pack(full.weights());
  for (Index n = 1; n < most; n += 3) {
    const Index first = most - n;  // other neighbours and another place in the tile
    const std::vector<Index> counts = {n};
    Matrix y(n, out), dx(n, in);
    packed_grouped_matmul().forward({}, packed, full.x.view().rows_from(first, n), {counts}, y);
    packed_grouped_matmul().input_grad({}, packed, full.dy.view().rows_from(first, n), {counts}, dx);
    EXPECT_TRUE(same_bits(y, full.y.view().rows_from(first, n))) << n << " rows";
    EXPECT_TRUE(same_bits(dx, full.dx.view().rows_from(first, n))) << n << " rows";
  }
}

TEST(GroupedMatmul, BitsDoNotDependOnTheNumberOfThreads) {
  const int before = threads();
  for (const Case& c : cases()) {
    SCOPED_TRACE(c);
    for (const GroupedMatmulKernel& kernel : {native_grouped_matmul(), packed_grouped_matmul()}) {
      Problem alone(c), shared(c);
      set_threads(1);
      alone.run(kernel, Write::kAdd);
      set_threads(3);
      shared.run(kernel, Write::kAdd);
      EXPECT_TRUE(same_bits(alone.y, shared.y));
      EXPECT_TRUE(same_bits(alone.dx, shared.dx));
      EXPECT_TRUE(same_bits(alone.dw, shared.dw));
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
    for (const GroupedMatmulKernel& kernel : {native_grouped_matmul(), packed_grouped_matmul()}) {
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
  const Case c{20, 12, {600}};
  Problem whole(c);
  whole.run(packed_grouped_matmul());
  Matrix in_chunks(c.out, c.in);
  for (Index row = 0; row < 600; row += kSumChunkRows) {
    const Index n = std::min(kSumChunkRows, 600 - row);
    const std::vector<Index> counts = {n};
    packed_grouped_matmul().weight_grad(whole.dy.view().rows_from(row, n), whole.x.view().rows_from(row, n),
                                        {counts}, in_chunks, row == 0 ? Write::kReplace : Write::kAdd);
  }
  EXPECT_TRUE(same_bits(whole.dw, in_chunks));
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

TEST(PackedWeights, FollowTheMastersOnlyWhenPackedAgain) {
  const Case c{20, 12, {5, 9}};
  Problem p(c);
  PackedWeights packed;
  EXPECT_TRUE(packed.empty());
  EXPECT_EQ(packed.bytes(), 0);
  packed.pack(p.weights());
  const auto forward = [&] {
    packed_grouped_matmul().forward(p.weights(), packed, p.x, p.rows, p.y);
    return Matrix::copy_of(p.y);
  };
  const Matrix first = forward();
  for (float& value : p.masters.view().flat()) value *= 2;
  EXPECT_TRUE(same_bits(forward(), first));
  packed.pack(p.weights());
  const Matrix second = forward();
  for (Index i = 0; i < first.rows() * first.cols(); ++i)
    ASSERT_EQ(second.view().data[i], 2 * first.view().data[i]);
  EXPECT_FALSE(packed.empty());
  EXPECT_EQ(packed.packings(), 2);
  EXPECT_GE(packed.bytes(), 2 * 4 * p.masters.view().size());
}

TEST(GroupedMatmul, RefusesWhatDoesNotFit) {
  const Case c{20, 12, {5, 9}};
  Problem p(c);
  PackedWeights none, packed;
  packed.pack(p.weights());
  const GroupedMatmulKernel kernel = packed_grouped_matmul();
  const std::vector<Index> fewer = {5, 8}, one_group = {14};
  EXPECT_THROW(kernel.forward(p.weights(), none, p.x, p.rows, p.y), ShapeError);
  EXPECT_THROW(kernel.forward(p.weights(), packed, p.x, {fewer}, p.y), ShapeError);
  EXPECT_THROW(kernel.forward(p.weights(), packed, p.x, {one_group}, p.y), ShapeError);
  EXPECT_THROW(kernel.forward(p.weights(), packed, p.dy, p.rows, p.y), ShapeError);
  EXPECT_THROW(kernel.weight_grad(p.dy, p.x, {fewer}, p.dw, Write::kReplace), ShapeError);
  EXPECT_THROW(native_grouped_matmul().weight_grad(p.dy, p.x, {fewer}, p.dw, Write::kReplace), ShapeError);
}

}  // namespace
}  // namespace moeloom
