#include "moeloom/kernels/low_rank.hpp"

#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"

namespace moeloom {
namespace {

constexpr Index kRowsPerTask = 64;

void scale(MatrixView x, float factor) {
  if (factor == 1) return;
  parallel_blocks(x.rows, kRowsPerTask, [&](Index begin, Index end) {
    for (Index i = begin; i < end; ++i)
      for (Index j = 0; j < x.cols; ++j) x.row(i)[j] *= factor;
  });
}

/// The columns of dy that an addition made.
ConstRows columns_of(const LowRank& part, ConstRows dy, Index out) {
  return dy.cols_from(part.column, out);
}

/// x A^T times s.
Matrix low_of(const DenseKernel& kernel, const LowRank& part, ConstRows x) {
  Matrix low = Matrix::uninitialised(x.rows(), part.a.rows);
  kernel.forward(x, part.a, low, Write::kReplace);
  scale(low, part.scale);
  return low;
}

/// dy B times s.
Matrix d_low_of(const DenseKernel& kernel, const LowRank& part, ConstMatrixView dy) {
  Matrix d_low = Matrix::uninitialised(dy.rows, part.b.cols);
  kernel.input_grad(dy.cols_from(part.column, part.b.rows), part.b, d_low, Write::kReplace);
  scale(d_low, part.scale);
  return d_low;
}

GroupedWeights stacked(MatrixView weights, const GroupedRows& rows) {
  return {weights, rows.groups()};
}

MatrixView of_groups(MatrixView stacked, Index groups, const Stretch& held) {
  const Index each = stacked.rows / groups;
  return stacked.rows_from(held.begin * each, held.size() * each);
}

}  // namespace

void add_low_rank(const DenseKernel& kernel, std::span<const LowRank> parts, ConstRows x, MatrixView y) {
  for (const LowRank& part : parts)
    kernel.forward(low_of(kernel, part, x), part.b, y.cols_from(part.column, part.b.rows), Write::kAdd);
}

void add_low_rank_input_grad(const DenseKernel& kernel, std::span<const LowRank> parts, ConstMatrixView dy,
                             MatrixView dx) {
  for (const LowRank& part : parts) kernel.input_grad(d_low_of(kernel, part, dy), part.a, dx, Write::kAdd);
}

void add_low_rank_weight_grads(const DenseKernel& kernel, std::span<const LowRank> parts, ConstMatrixView dy,
                               ConstRows x, ExactSums* sums) {
  for (const LowRank& part : parts) {
    if (part.d_a.rows == 0) continue;
    for_each_leaf(sums, dy.rows, [&](Index first, Index rows) {
      const ConstMatrixView dy_of = dy.rows_from(first, rows);
      const ConstRows x_of = x.rows_from(first, rows);
      kernel.weight_grad(columns_of(part, dy_of, part.b.rows), low_of(kernel, part, x_of), part.d_b,
                         Write::kAdd);
      kernel.weight_grad(d_low_of(kernel, part, dy_of), x_of, part.d_a, Write::kAdd);
      if (sums == nullptr) return;
      sums->take(part.d_b);
      sums->take(part.d_a);
    });
  }
}

Index low_columns(std::span<const LowRank> parts, Index groups) {
  Index columns = 0;
  for (const LowRank& part : parts) columns += part.a.rows / groups;
  return columns;
}

namespace {

/// U of the groups' rows.
MatrixView low_of(const GroupedMatmulKernel& kernel, const LowRank& part, const GroupedWeights& a,
                  ConstRows x, const GroupedRows& rows, Matrix& low) {
  low.reshape_uninitialised(x.rows(), a.out());
  kernel.forward(a, PackedWeights(), x, rows, low);
  scale(low, part.scale);
  return low;
}

/// use(part, its columns of d_low)
void for_each_part(std::span<const LowRank> parts, Index groups, auto&& d_low, auto&& use) {
  Index column = 0;
  for (const LowRank& part : parts) {
    const Index rank = part.a.rows / groups;
    use(part, d_low.cols_from(column, rank));
    column += rank;
  }
}

}  // namespace

void add_low_rank(const GroupedMatmulKernel& kernel, std::span<const LowRank> parts, ConstRows x,
                  const GroupedRows& rows, MatrixView y, Matrix& low) {
  for (const LowRank& part : parts) {
    const GroupedWeights b = stacked(part.b, rows);
    kernel.add_forward(b, low_of(kernel, part, stacked(part.a, rows), x, rows, low), rows,
                       y.cols_from(part.column, b.out()));
  }
}

void add_low_rank_input_grad(const GroupedMatmulKernel& kernel, std::span<const LowRank> parts, ConstRows dy,
                             const GroupedRows& rows, MatrixView dx, MatrixView d_low) {
  for_each_part(parts, rows.groups(), d_low, [&](const LowRank& part, MatrixView d_low_of_part) {
    const GroupedWeights b = stacked(part.b, rows);
    kernel.input_grad(b, PackedWeights(), columns_of(part, dy, b.out()), rows, d_low_of_part);
    scale(d_low_of_part, part.scale);
    kernel.add_input_grad(stacked(part.a, rows), d_low_of_part, rows, dx);
  });
}

void low_rank_weight_grads(const GroupedMatmulKernel& kernel, std::span<const LowRank> parts, Index groups,
                           const Stretch& held, ConstRows dy, ConstMatrixView d_low, ConstRows x,
                           const GroupedRows& rows, ExactSums* sums, Write mode, Matrix& low) {
  for_each_part(parts, groups, d_low, [&](const LowRank& part, ConstMatrixView d_low_of_part) {
    if (part.d_a.rows == 0) return;
    const auto gradients = [&](MatrixView all) {
      return GroupedGradients(of_groups(all, groups, held), sums);
    };
    const GroupedWeights a = stacked(of_groups(part.a, groups, held), rows);
    const Index out = part.b.rows / groups;
    kernel.weight_grad(columns_of(part, dy, out), low_of(kernel, part, a, x, rows, low), rows,
                       gradients(part.d_b), mode);
    kernel.weight_grad(d_low_of_part, x, rows, gradients(part.d_a), mode);
  });
}

}  // namespace moeloom
