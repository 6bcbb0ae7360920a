// Dense products on OpenBLAS.
//
// Weights are [out, in], as Hugging Face stores them. OpenBLAS runs on one thread meanwhile (its number of
// threads is set back after each call); the rank's threads share fixed blocks of rows, or of columns for a
// weight gradient, so the bits do not depend on how many there are. They do depend on OpenBLAS's version and
// on the kernels that it chooses for the CPU. No collective. All throw ShapeError for shapes that do not fit,
// or beyond the int of BLAS; results overlap no operand.
#pragma once

#include "moeloom/tensor/matrix.hpp"

#include <string>

namespace moeloom {

/// Rows that one product adds to a weight gradient at a time: the fixed chunk of every sum over tokens.
inline constexpr Index kSumChunkRows = 256;
/// Rows of x or dy that one call of BLAS takes of matmul() and matmul_input_grad(), and columns of x that one
/// takes of matmul_weight_grad(). Parts cut at their multiples have the bits of the whole.
inline constexpr Index kGemmRows = 256;
inline constexpr Index kGemmColumns = 256;

/// Whether a product replaces what is in its result, or is added to it.
enum class Write { kReplace, kAdd };

/// y [M, out] = x [M, in] w^T, w [out, in].
void matmul(ConstMatrixView x, ConstMatrixView w, MatrixView y, Write mode = Write::kReplace);
/// y, contiguous, in double, of operands that are widened: for products so small that precision is cheap.
void matmul(ConstMatrixView x, ConstMatrixView w, BasicView<double> y);
/// dx [M, in] = dy [M, out] w.
void matmul_input_grad(ConstMatrixView dy, ConstMatrixView w, MatrixView dx, Write mode = Write::kReplace);
/// dw [out, in] = dy^T x of dy [M, out], x [M, in]; rows are added in chunks of kSumChunkRows, in order. M =
/// 0 writes zeros (kReplace) or nothing.
void matmul_weight_grad(ConstMatrixView dy, ConstMatrixView x, MatrixView dw, Write mode = Write::kAdd);

/// c = alpha * op(a) op(b) + beta * c on the calling thread, op the transpose or nothing: for callers that
/// are themselves a parallel task. beta = 0: c is not read.
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
