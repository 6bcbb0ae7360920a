// Products of dense layers: q, k, v, output, MLPs, shared experts and the head; one weight, all of a rank's
// rows.
#pragma once

#include "moeloom/tensor/gemm.hpp"

namespace moeloom {

/// As tensor/gemm.hpp says it; every function shares its work among the rank's threads, and the bits do not
/// depend on how many there are.
struct DenseKernel {
  /// y [M, out] = x [M, in] w^T, w [out, in].
  void (*forward)(ConstMatrixView x, ConstMatrixView w, MatrixView y, Write mode) = matmul;
  /// dx [M, in] = dy [M, out] w.
  void (*input_grad)(ConstMatrixView dy, ConstMatrixView w, MatrixView dx, Write mode) = matmul_input_grad;
  /// dw [out, in] = dy^T x, rows in chunks of kSumChunkRows in order.
  void (*weight_grad)(ConstMatrixView dy, ConstMatrixView x, MatrixView dw, Write mode) = matmul_weight_grad;
};

/// OpenBLAS.
inline DenseKernel native_dense() {
  return {};
}
/// The grouped matmul's register tiles with one group, reading the master: a row's bits do not depend on the
/// other rows. For many rows: each call packs the weight on the way.
DenseKernel tiled_dense();
/// The same multiplying bf16, with sums, rows and results in fp32; where cpu_has_bf16() is false, slowly.
DenseKernel tiled_bf16_dense();

}  // namespace moeloom
