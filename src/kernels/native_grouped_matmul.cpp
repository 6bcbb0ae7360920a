// The native path: a loop over groups, each an OpenBLAS product straight from the masters.
#include "moeloom/base/errors.hpp"
#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"
#include "tensor/rounded_sums.hpp"
#include "tensor/tree_sum.hpp"

namespace moeloom {
namespace {

/// body(group, first row, rows) for every group, each with rows a task.
template <typename Body>
void for_each_group(const GroupedRows& rows, Body body) {
  Index first = 0;
  for (Index g = 0; g < rows.groups(); ++g) {
    const Index count = rows.of_group(g);
    if (count > 0)
      as_task([&] { body(g, first, count); });
    else
      body(g, first, count);
    first += count;
  }
}

using Product = void (*)(ConstMatrixView rows, ConstMatrixView weight, MatrixView result, Write mode);

void multiply(Product product, const GroupedWeights& w, ConstRows given, const GroupedRows& rows,
              MatrixView result, Write mode) {
  w.check();
  rows.check(given, result);
  require(w.groups == rows.groups(), "grouped matmul needs a weight for each group of rows");
  const ConstMatrixView x = given.fp32();
  Matrix wide;
  for_each_group(rows, [&](Index g, Index first, Index count) {
    if (count == 0) return;
    product(x.rows_from(first, count), w.group(g).widened(wide), result.rows_from(first, count), mode);
  });
}

void forward(const GroupedWeights& w, const PackedWeights&, ConstRows x, const GroupedRows& rows,
             MatrixView y) {
  multiply(matmul, w, x, rows, y, Write::kReplace);
}
void input_grad(const GroupedWeights& w, const PackedWeights&, ConstRows dy, const GroupedRows& rows,
                MatrixView dx) {
  multiply(matmul_input_grad, w, dy, rows, dx, Write::kReplace);
}
void add_forward(const GroupedWeights& w, ConstRows x, const GroupedRows& rows, MatrixView y) {
  multiply(matmul, w, x, rows, y, Write::kAdd);
}
void add_input_grad(const GroupedWeights& w, ConstRows dy, const GroupedRows& rows, MatrixView dx) {
  multiply(matmul_input_grad, w, dy, rows, dx, Write::kAdd);
}

/// One group's rows, source after source.
struct GroupRows {
  ConstMatrixView dy;
  ConstMatrixView x;
  std::span<const Index> rows_per_source;
};

/// dw = the tree sum over sources [lo, hi), the first of whose rows is `first`; returns the row after them.
Index sum_sources(const GroupRows& group, Index lo, Index hi, Index first, MatrixView dw) {
  if (hi - lo == 1) {
    const Index count = group.rows_per_source[static_cast<std::size_t>(lo)];
    matmul_weight_grad(group.dy.rows_from(first, count), group.x.rows_from(first, count), dw,
                       Write::kReplace);
    return first + count;
  }
  const Index mid = tree_split(lo, hi);
  Matrix right = Matrix::uninitialised(dw.rows, dw.cols);
  const Index split = sum_sources(group, lo, mid, first, dw);
  const Index end = sum_sources(group, mid, hi, split, right);
  add(right, dw);
  return end;
}

void write_group(const GroupRows& group, MatrixView dw, Write mode) {
  const auto sources = static_cast<Index>(group.rows_per_source.size());
  const Index rows = group.dy.rows;
  if (rows == 0 || (sources == 1 && rows <= kSumChunkRows))
    return matmul_weight_grad(group.dy, group.x, dw, mode);
  if (mode == Write::kReplace) {
    sum_sources(group, 0, sources, 0, dw);
    return;
  }
  Matrix sum = Matrix::uninitialised(dw.rows, dw.cols);
  sum_sources(group, 0, sources, 0, sum);
  add(sum, dw);
}

/// The sum is made beside dw, and rounded once.
void write_group(const GroupRows& group, Bf16View dw, Write mode) {
  Matrix sum = Matrix::uninitialised(dw.rows, dw.cols);
  write_group(group, sum.view(), Write::kReplace);
  write_rounded(sum, dw, mode);
}

void weight_grad(ConstRows given_dy, ConstRows given_x, const GroupedRows& rows, const GroupedGradients& dw,
                 Write mode) {
  rows.check(given_dy, given_x);
  const ConstMatrixView dy = given_dy.fp32(), x = given_x.fp32();
  dw.check(rows.groups(), dy.cols, x.cols);
  require(dw.sums() == nullptr, "exact sums need grouped products on register tiles");
  for_each_group(rows, [&](Index g, Index first, Index count) {
    const std::span<const Index> sources = rows.rows_per_source.subspan(
        static_cast<std::size_t>(g * rows.sources), static_cast<std::size_t>(rows.sources));
    const GroupRows group{dy.rows_from(first, count), x.rows_from(first, count), sources};
    std::visit([&](auto view) { write_group(group, view, mode); }, dw.group(g, dy.cols));
  });
}

}  // namespace

GroupedMatmulKernel native_grouped_matmul() {
  return {.uses_packed = false,
          .forward = forward,
          .input_grad = input_grad,
          .add_forward = add_forward,
          .add_input_grad = add_input_grad,
          .weight_grad = weight_grad};
}

}  // namespace moeloom
