// Grouped matmul (GMM): one product a group of rows, each with its own weight; forward, input and weight
// gradient.
//
// A group is an expert of this rank. Rows arrive grouped: first the rows of group 0, then those of group 1,
// ...; within a group by the rank that sent them (the source).
//
// Weights have two faces. The master is plain fp32 [out, in] a group. The packed face is made from it once
// whenever weights have changed, in the order the register tile reads it and in both orientations, in fp32 or
// bf16. A product reads either: the master a panel at a time, packed in the first cache while the tile before
// it multiplies, or the packed face, which pays for its memory traffic from a few uses on. The bits are the
// same. Rows are fp32 in memory, or bf16 where that is what a kernel multiplies; results are fp32.
//
// No collective. Weights, gradients, rows and counts are views: what they show must outlive them.
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

  /// Of separate matrices; the list itself must live as long.
  static GroupedWeights list(std::span<const ConstMatrixView> separate) {
    return {{}, static_cast<Index>(separate.size()), separate};
  }
  /// Rows and columns of each; 0 rows without groups.
  Index out() const {
    return groups == 0 ? 0 : separate.empty() ? stacked.rows() / groups : separate[0].rows;
  }
  Index in() const { return separate.empty() ? stacked.cols() : separate[0].cols; }
  ConstRows group(Index g) const {
    return separate.empty() ? stacked.rows_from(g * out(), out())
                            : ConstRows(separate[static_cast<std::size_t>(g)]);
  }
  /// Throws ShapeError unless all groups have one shape.
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
  /// sums: null, or exact sums of which each source's product is a leaf, at the place of `stacked`, which is
  /// then fp32 and in the memory that `sums` was made for.
  GroupedGradients(Rows stacked, ExactSums* sums) : stacked_(stacked), sums_(sums) {}
  ExactSums* sums() const { return sums_; }
  /// Throws ShapeError unless there are `groups` of [out, in].
  void check(Index groups, Index out, Index in) const;
  /// Where group g goes; out: rows of every group.
  Rows group(Index g, Index out) const {
    return separate_.empty() ? rows_from(stacked_, g * out, out)
                             : Rows(separate_[static_cast<std::size_t>(g)]);
  }

 private:
  Rows stacked_;
  std::span<const MatrixView> separate_;
  ExactSums* sums_ = nullptr;
};

/// How many rows each group got from each source rank; rows_per_source[g * sources + s]. A caller without
/// ranks says one source: rows_per_source is then the rows of each group.
struct GroupedRows {
  std::span<const Index> rows_per_source;
  Index sources = 1;
  Index groups() const { return static_cast<Index>(rows_per_source.size()) / sources; }
  Index of_source(Index g, Index s) const {
    return rows_per_source[static_cast<std::size_t>(g * sources + s)];
  }
  /// Rows of a group, and of all groups.
  Index of_group(Index g) const;
  Index total() const;
  /// Throws ShapeError unless `input` and `output` both have total() rows.
  void check(ConstRows input, ConstRows output) const;
};

/// The packed faces of grouped weights, in memory of their own. Moved, not copied; empty until the first
/// pack(). They do not follow their masters: who changes weights packs again.
class PackedWeights {
 public:
  PackedWeights();
  PackedWeights(PackedWeights&&) noexcept;
  PackedWeights& operator=(PackedWeights&&) noexcept;
  ~PackedWeights();

  /// Makes both faces from the masters on the rank's threads, as kF32 or kBF16 (rounded to nearest, ties to
  /// even); memory is kept from the last time. Throws ShapeError for another element, or masters of different
  /// shapes.
  void pack(const GroupedWeights& masters, DType element = DType::kF32);
  bool empty() const;
  /// What the last pack() made.
  DType element() const;
  /// Of both faces, as they are now.
  Index bytes() const;
  /// Of both faces of weights with so many numbers, before they are made.
  static double bytes_of(Index numbers, DType element) {
    return (element == DType::kBF16 ? 1 : 2) * array_bytes(numbers);
  }
  /// Packings made so far.
  Index packings() const;

  /// The library's own.
  struct State;
  const State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

/// A forward with its backward. Every function, also one of your own: no collective; the rank's threads share
/// the work (parallel_for), and the bits do not depend on how many there are; ShapeError for shapes that do
/// not fit. Zero rows in a group cost nothing.
struct GroupedMatmulKernel {
  /// Whether the caller is to keep `packed` as the current masters' faces; else it hands over empty ones, and
  /// the masters are read. The native loop reads the masters in any case.
  bool uses_packed = false;
  /// What it multiplies, and what `packed` must have been packed as, unless it is empty. Rows may be of it or
  /// kF32, with the same bits; of anything else they are refused (ShapeError).
  DType element = DType::kF32;
  /// Whether a row's bits depend on that row alone, in forward and input_grad, whatever else a call has.
  bool rows_alone = false;
  /// y [R, out] = x_g w_g^T for the rows of each group g, x [R, in], R = rows.total().
  void (*forward)(const GroupedWeights& w, const PackedWeights& packed, ConstRows x, const GroupedRows& rows,
                  MatrixView y);
  /// dx [R, in] = dy_g w_g.
  void (*input_grad)(const GroupedWeights& w, const PackedWeights& packed, ConstRows dy,
                     const GroupedRows& rows, MatrixView dx);
  /// y += x_g w_g^T from the masters; null: the kernel has no such product. Likewise the next.
  void (*add_forward)(const GroupedWeights& w, ConstRows x, const GroupedRows& rows, MatrixView y) = nullptr;
  /// dx += dy_g w_g from the masters.
  void (*add_input_grad)(const GroupedWeights& w, ConstRows dy, const GroupedRows& rows,
                         MatrixView dx) = nullptr;
  /// dw [out, in] a group: dy_g^T x_g, added up in one order: within a source rank rows in chunks of
  /// kSumChunkRows, sources along the tree of Communicator::all_sum(). kReplace writes zeros for a group
  /// without rows. With exact sums each source is a leaf, which is added to them, and nothing else is
  /// written; the native loop refuses them (ShapeError). dw in bf16 is that number, rounded to the nearest.
  void (*weight_grad)(ConstRows dy, ConstRows x, const GroupedRows& rows, const GroupedGradients& dw,
                      Write mode);
};

/// A loop over groups on OpenBLAS: the reference that every grouped result is tested against.
GroupedMatmulKernel native_grouped_matmul();
/// Register tiles on packed weights, or on masters where uses_packed is set to false. rows_alone.
GroupedMatmulKernel packed_grouped_matmul();
/// packed_grouped_matmul() in bf16: rows, gradients and weights are rounded to it while they are packed,
/// products are added up in fp32. A unit that the CPU lacks is made of other instructions, slowly and with
/// its own bits.
GroupedMatmulKernel packed_bf16_grouped_matmul(Bf16Unit unit = best_bf16_unit());
/// For decoding, as streamed_dense(): where no group has more than 4 rows, masters are read once, as fast as
/// memory delivers them; else, and for gradients, packed_grouped_matmul() on masters.
GroupedMatmulKernel streamed_grouped_matmul();

}  // namespace moeloom
