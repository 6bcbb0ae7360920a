// Low-rank additions to products (LoRA: Hu et al. 2021, section 4): beside y = x W^T, whose W rests,
//
//   forward    U = s x A^T [R, r], y += U B^T
//   backward   dU = s dy B [R, r], dx += dU A, dA += dU^T x, dB += dy^T U
//
// U is made again where it is needed, as is dU of a single weight: they cost r / out and r / in of the
// product. A product whose rows are several modules of a file (q, k, v; gate, up) has an addition for each,
// to its own columns of y.
//
// With dropout of share p the addition reads m .* x / (1 - p), while the product of W reads x (PEFT):
//
//   forward    U = s / (1 - p) (m .* x) A^T
//   backward   dU = s / (1 - p) dy B, dx += m .* (dU A), dA += dU^T (m .* x)
//
// The masks are drawn by keys of rows, which the caller gives: also of a row that is not x's own, where
// backward has not made x again when it asks for dx.
#pragma once

#include "kernels/dropout.hpp"
#include "moeloom/base/stretch.hpp"
#include "moeloom/kernels/dense.hpp"
#include "moeloom/kernels/grouped_matmul.hpp"
#include "moeloom/tensor/exact_sums.hpp"

#include <span>

namespace moeloom {

/// Of one weight, or of each of some groups' weights, stacked: A [groups * r, in], B [groups * out, r].
struct LowRank {
  Index column = 0;  // the first of y's that it adds to, out of them
  MatrixView a = {};
  MatrixView b = {};
  MatrixView d_a = {};  // without rows, like d_b: not computed
  MatrixView d_b = {};
  float scale = 1;                   // s
  const Dropout* dropout = nullptr;  // of its inputs, as it is at each call; null: none
  std::uint64_t stream = 0;          // of its masks

  bool drops() const { return dropout != nullptr && dropout->share > 0; }
};

/// Whether any of them needs keys of rows now.
bool drops_inputs(std::span<const LowRank> parts);

// Rows whose dropped copies are held at once, of one weight and of groups. The gradient of A reads all rows
// of a group together: where they are more, some columns of them.
inline constexpr Index kDroppedRows = kSumChunkRows;
inline constexpr Index kDroppedGroupRows = 1024;
/// Those columns.
Index dropped_columns(Index rows, Index cols);
/// Of those copies, at most; of groups all rows may be those of one.
double dropped_bytes(Index rows, Index cols);
double dropped_group_bytes(Index rows, Index cols);

// Of one weight. Threads of the rank share the work; a row's bits depend on it alone as far as the kernel's
// do. Keys: of each row, where drops_inputs().
/// y [M, out] is added to.
void add_low_rank(const DenseKernel& kernel, std::span<const LowRank> parts, ConstRows x, MatrixView y,
                  RowKeys keys = {});
/// dx [M, in] is added to.
void add_low_rank_input_grad(const DenseKernel& kernel, std::span<const LowRank> parts, ConstMatrixView dy,
                             MatrixView dx, RowKeys keys = {});
/// The gradients are added to, or to their exact sums, a leaf of rows after the other.
void add_low_rank_weight_grads(const DenseKernel& kernel, std::span<const LowRank> parts, ConstMatrixView dy,
                               ConstRows x, ExactSums* sums, RowKeys keys = {});

// Of groups, each on its own rows. They read the masters, whatever the kernel packs. Keys as above.
/// The ranks of all parts of `groups` weights together: columns that dU has.
Index low_columns(std::span<const LowRank> parts, Index groups);
/// low: U of a part, kept from call to call.
void add_low_rank(const GroupedMatmulKernel& kernel, std::span<const LowRank> parts, ConstRows x,
                  const GroupedRows& rows, MatrixView y, Matrix& low, RowKeys keys = {});
/// -> d_low [R, low_columns] too, which low_rank_weight_grads() wants.
void add_low_rank_input_grad(const GroupedMatmulKernel& kernel, std::span<const LowRank> parts, ConstRows dy,
                             const GroupedRows& rows, MatrixView dx, MatrixView d_low, RowKeys keys = {});
/// rows: of the groups `held` out of all `groups`, like dy, x and d_low; their gradients are written or added
/// to, as weight_grad() of the kernel does.
void low_rank_weight_grads(const GroupedMatmulKernel& kernel, std::span<const LowRank> parts, Index groups,
                           const Stretch& held, ConstRows dy, ConstMatrixView d_low, ConstRows x,
                           const GroupedRows& rows, ExactSums* sums, Write mode, Matrix& low,
                           RowKeys keys = {});

}  // namespace moeloom
