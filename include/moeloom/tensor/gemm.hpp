// Dense products on OpenBLAS, the only place that calls it.
//
// Weights are [out, in], as HF stores them. BLAS itself runs on one thread; the rank's threads share fixed
// row blocks (or column panels of a weight gradient), so the bits do not depend on how many there are.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <string>

namespace moeloom {

/// Rows that one product adds to a weight gradient at a time: the fixed chunk of every sum over tokens.
inline constexpr Index kSumChunkRows = 256;
/// What one product of BLAS takes of matmul() and matmul_input_grad(), rows from the first on, and of
/// matmul_weight_grad(), columns from the first on. So parts cut at their multiples have the bits of the
/// whole, whoever multiplies them.
inline constexpr Index kGemmRows = 256;
inline constexpr Index kGemmColumns = 256;

enum class Write { kReplace, kAdd };

/// y [M, out] = x [M, in] w^T, w [out, in].
void matmul(ConstMatrixView x, ConstMatrixView w, MatrixView y, Write mode = Write::kReplace);
/// The same in double, of operands that are widened: for products so small that their precision is cheap.
void matmul(ConstMatrixView x, ConstMatrixView w, BasicView<double> y);
/// dx [M, in] = dy [M, out] w.
void matmul_input_grad(ConstMatrixView dy, ConstMatrixView w, MatrixView dx, Write mode = Write::kReplace);
/// dw [out, in] = dy^T x, rows added in chunks of kSumChunkRows in order. M = 0 writes zeros (kReplace).
void matmul_weight_grad(ConstMatrixView dy, ConstMatrixView x, MatrixView dw, Write mode = Write::kAdd);

/// c = alpha * op(a) op(b) + beta * c on the calling thread: for callers that are themselves a parallel task.
struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1.0f;
  float beta = 0.0f;
};
void gemm_serial(ConstMatrixView a, ConstMatrixView b, MatrixView c, GemmOptions options);

/// The library's version and build with the kernels it chose for this CPU: "OpenBLAS 0.3.21 ... Zen ...".
std::string blas_library();

}  // namespace moeloom
