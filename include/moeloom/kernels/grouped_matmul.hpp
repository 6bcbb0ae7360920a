// Grouped matmul (GMM): one product a group of rows, each with its own weight; forward, input and weight
// gradient.
//
// Rows arrive grouped: first the rows of group 0, then those of group 1, ...; within a group by source rank.
// Weights have two faces. The master is plain fp32 [out, in] a group. The packed face is made from it once
// per weight version, in the order the register tile reads it and in both orientations, in fp32 or bf16. A
// product reads either: the master a panel at a time, packed in the first cache while the tile before it
// multiplies, or the packed face, which pays for its memory traffic from a few uses on. The bits are the
// same. Rows are fp32 in memory, or bf16 where that is what a kernel multiplies; results are fp32.
#pragma once

#include "moeloom/kernels/bf16_unit.hpp"
#include "moeloom/tensor/dtype.hpp"
#include "moeloom/tensor/exact_sums.hpp"
#include "moeloom/tensor/gemm.hpp"
#include "moeloom/tensor/rows.hpp"

#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace moeloom {

/// Masters of `groups` experts of one shape: stacked, group g rows [g*out, (g+1)*out) of [groups*out, in], or
/// `separate`, a matrix [out, in] each, wherever they lie (list-backed experts: upstream's hybrid GMM). Both
/// give the same bits, and so do stacked masters in bf16 or F16, which are widened on their way into a
/// product.
struct GroupedWeights {
  ConstRows stacked;
  Index groups = 0;
  std::span<const ConstMatrixView> separate = {};  // if not empty, one a group, and `stacked` is not read

  static GroupedWeights list(std::span<const ConstMatrixView> separate) {
    return {{}, static_cast<Index>(separate.size()), separate};
  }
  Index out() const {
    return groups == 0 ? 0 : separate.empty() ? stacked.rows() / groups : separate[0].rows;
  }
  Index in() const { return separate.empty() ? stacked.cols() : separate[0].cols; }
  ConstRows group(Index g) const {
    return separate.empty() ? stacked.rows_from(g * out(), out())
                            : ConstRows(separate[static_cast<std::size_t>(g)]);
  }
  /// Throws ShapeError unless all groups have the same shape.
  void check() const;
};

/// Where their gradients go, stacked or a matrix each. What is stacked may be bf16: a sum is then made in
/// fp32 and rounded once, where a product writes it or adds to what is there.
class GroupedGradients {
 public:
  GroupedGradients(MatrixView stacked) : stacked_(stacked) {}  // NOLINT: a view of the whole is one of these
  GroupedGradients(Matrix& stacked) : stacked_(stacked) {}     // NOLINT
  GroupedGradients(Bf16View stacked) : stacked_(stacked) {}    // NOLINT
  explicit GroupedGradients(std::span<const MatrixView> separate) : separate_(separate) {}
  /// Each source's product is a leaf of `sums`, if there are any, at the place of `stacked`, which is then
  /// fp32.
  GroupedGradients(Rows stacked, ExactSums* sums) : stacked_(stacked), sums_(sums) {}
  ExactSums* sums() const { return sums_; }
  /// Throws ShapeError unless there are `groups` of [out, in].
  void check(Index groups, Index out, Index in) const;
  /// out: rows of every group.
  Rows group(Index g, Index out) const {
    return separate_.empty() ? rows_from(stacked_, g * out, out)
                             : Rows(separate_[static_cast<std::size_t>(g)]);
  }

 private:
  Rows stacked_;
  std::span<const MatrixView> separate_;
  ExactSums* sums_ = nullptr;
};

/// How many rows each group got from each source rank; rows_per_source[g * sources + s].
struct GroupedRows {
  std::span<const Index> rows_per_source;
  Index sources = 1;
  Index groups() const { return static_cast<Index>(rows_per_source.size()) / sources; }
  Index of_source(Index g, Index s) const {
    return rows_per_source[static_cast<std::size_t>(g * sources + s)];
  }
  Index of_group(Index g) const;
  Index total() const;
  /// Throws ShapeError unless what goes in and what comes out both have these rows.
  void check(ConstRows input, ConstRows output) const;
};

/// The packed faces of grouped weights. Movable; empty until the first pack().
class PackedWeights {
 public:
  PackedWeights();
  PackedWeights(PackedWeights&&) noexcept;
  PackedWeights& operator=(PackedWeights&&) noexcept;
  ~PackedWeights();

  /// Makes both faces from the masters on the rank's threads, as kF32 or kBF16 (rounded to nearest, ties to
  /// even); memory is kept from the last time.
  void pack(const GroupedWeights& masters, DType element = DType::kF32);
  bool empty() const;
  /// What the last pack() made.
  DType element() const;
  Index bytes() const;
  /// Of weights with so many numbers: their bytes twice, in bf16 once.
  static double bytes_of(Index numbers, DType element) {
    return (element == DType::kBF16 ? 1 : 2) * array_bytes(numbers);
  }
  /// Packings made so far.
  Index packings() const;

  struct State;
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// Every function: collective over nothing, threads of the rank share the work, the bits do not depend on how
/// many there are. Zero rows in a group cost nothing.
struct GroupedMatmulKernel {
  /// Whether `packed` is to be kept as the current masters' faces; else it stays empty, and masters are read.
  /// The native loop ignores it.
  bool uses_packed = false;
  /// What it multiplies, and what `packed` must have been packed as, unless it is empty. Rows may be of it or
  /// kF32, with the same bits; of anything else they are refused (ShapeError).
  DType element = DType::kF32;
  /// Whether a row's bits depend on that row alone, in forward and input_grad, whatever else a call has.
  bool rows_alone = false;
  /// y [R, out] = x_g w_g^T.
  void (*forward)(const GroupedWeights& w, const PackedWeights& packed, ConstRows x, const GroupedRows& rows,
                  MatrixView y);
  /// dx [R, in] = dy_g w_g.
  void (*input_grad)(const GroupedWeights& w, const PackedWeights& packed, ConstRows dy,
                     const GroupedRows& rows, MatrixView dx);
  /// y += x_g w_g^T from the masters.
  void (*add_forward)(const GroupedWeights& w, ConstRows x, const GroupedRows& rows, MatrixView y) = nullptr;
  /// dx += dy_g w_g from the masters.
  void (*add_input_grad)(const GroupedWeights& w, ConstRows dy, const GroupedRows& rows,
                         MatrixView dx) = nullptr;
  /// dw [out, in] a group: dy_g^T x_g, in the one order: within a source rank rows in chunks of
  /// kSumChunkRows, sources along tree_sum's tree. kReplace writes zeros for a group without rows. With exact
  /// sums each source is a leaf, which is added to them, and nothing else is written; the native loop refuses
  /// them. dw in bf16 is that number, rounded to the nearest.
  void (*weight_grad)(ConstRows dy, ConstRows x, const GroupedRows& rows, const GroupedGradients& dw,
                      Write mode);
};

/// A loop over groups on OpenBLAS: the path the policy compares with, and the reference of every GMM result.
GroupedMatmulKernel native_grouped_matmul();
/// Register tiles on packed weights, or on masters where uses_packed is set to false: any row count, nothing
/// to compile. rows_alone.
GroupedMatmulKernel packed_grouped_matmul();
/// The same in bf16: rows, gradients and weights are rounded to it while they are packed, products are added
/// up in fp32. A unit that the CPU lacks is made of other instructions, slowly and with its own bits.
GroupedMatmulKernel packed_bf16_grouped_matmul(Bf16Unit unit = best_bf16_unit());
/// For decoding, as streamed_dense(): where no group has more than 4 rows, masters are read once, as fast as
/// memory delivers them; else, and for gradients, packed_grouped_matmul() on masters.
GroupedMatmulKernel streamed_grouped_matmul();

}  // namespace moeloom
