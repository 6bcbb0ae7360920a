// Dispatch: rows out to the ranks that hold their experts, and back again.
//
// A plan is made once a layer from counts alone; dispatch and combine then move rows by the same plan in
// opposite directions, so each is the other's backward (as in DeepEP). Rows travel as MPI_Alltoallv of whole
// rows; with one ep rank nothing travels and dispatch is a gather.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/moe/dispatch_plan.hpp"
#include "moeloom/tensor/gemm.hpp"
#include "moeloom/tensor/matrix.hpp"

#include <span>

namespace moeloom {

/// Every member function is collective over ep: all ranks call it, also with no token.
class Dispatcher {
 public:
  /// `ep` must outlive it.
  Dispatcher(const Communicator& ep, Index num_experts);

  /// topk_idx [T, K]. Counts travel first: no row can move before its receiver knows how many come.
  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);

  /// tokens [T, D] -> rows [R, D], each token once a slot, grouped by local expert. Throws ShapeError,
  /// MpiError.
  void dispatch(const DispatchPlan& plan, ConstMatrixView tokens, Matrix& rows);
  /// One number a slot [N] -> one a row [R].
  void dispatch_scalars(const DispatchPlan& plan, std::span<const float> slots, std::vector<float>& rows);
  /// rows [R, D] -> tokens [T, D]: the sum of a token's K rows in slot order, written or added.
  void combine(const DispatchPlan& plan, ConstMatrixView rows, MatrixView tokens, Write mode);
  /// One number a row [R] -> one a slot [N].
  void combine_scalars(const DispatchPlan& plan, std::span<const float> rows, std::vector<float>& slots);

 private:
  const Communicator& ep_;
  Index num_experts_;
  Matrix leaving_;   // rows in the order in which they leave
  Matrix arriving_;  // rows in the order in which they arrive
};

}  // namespace moeloom
