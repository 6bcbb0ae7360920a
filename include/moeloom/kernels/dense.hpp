// Products of dense layers: q, k, v, output, MLPs, shared experts and the head; one weight, all of a rank's
// rows. No collective.
#pragma once

#include "moeloom/base/parallel.hpp"
#include "moeloom/kernels/bf16_unit.hpp"
#include "moeloom/tensor/gemm.hpp"
#include "moeloom/tensor/rows.hpp"

namespace moeloom {

// tensor/gemm.hpp's products, of fp32 rows alone; each is one task.
inline void native_forward(ConstRows x, ConstRows w, MatrixView y, Write mode) {
  Matrix wide;
  as_task([&] { matmul(x.fp32(), w.widened(wide), y, mode); });
}
inline void native_input_grad(ConstRows dy, ConstRows w, MatrixView dx, Write mode) {
  Matrix wide;
  as_task([&] { matmul_input_grad(dy.fp32(), w.widened(wide), dx, mode); });
}
inline void native_weight_grad(ConstRows dy, ConstRows x, MatrixView dw, Write mode) {
  as_task([&] { matmul_weight_grad(dy.fp32(), x.fp32(), dw, mode); });
}

/// A forward with its backward, as matmul() and its gradients are (tensor/gemm.hpp). A function of one's own
/// has to keep what every one here promises: it shares its work among the rank's threads (parallel_for), its
/// bits do not depend on how many there are, and it throws ShapeError for shapes that do not fit. Never null.
struct DenseKernel {
  /// What it multiplies, kF32 or kBF16. Rows x and dy may be of it or kF32, with the same bits; others are
  /// refused (ShapeError).
  DType element = DType::kF32;
  /// y [M, out] = x [M, in] w^T, w [out, in] in fp32, or in bf16 or F16 with the bits that the same numbers
  /// in fp32 would give.
  void (*forward)(ConstRows x, ConstRows w, MatrixView y, Write mode) = native_forward;
  /// dx [M, in] = dy [M, out] w.
  void (*input_grad)(ConstRows dy, ConstRows w, MatrixView dx, Write mode) = native_input_grad;
  /// dw [out, in] = dy^T x, rows added in chunks of kSumChunkRows, in order.
  void (*weight_grad)(ConstRows dy, ConstRows x, MatrixView dw, Write mode) = native_weight_grad;
};

/// OpenBLAS, the reference: a weight in 16 bits is widened as a whole in each call.
inline DenseKernel native_dense() {
  return {};
}
/// The grouped matmul's register tiles with one group: a row's bits do not depend on the other rows. For 8
/// rows and more: each call packs the weight on the way.
DenseKernel tiled_dense();
/// tiled_dense() in bf16, with sums and results in fp32. A unit that the CPU lacks is made of other
/// instructions, slowly.
DenseKernel tiled_bf16_dense(Bf16Unit unit = best_bf16_unit());
/// For decoding: up to 4 rows are multiplied as fast as the weight comes from memory, more by tiled_dense().
/// A row's bits do not depend on the other rows of up to 4.
DenseKernel streamed_dense();

}  // namespace moeloom
