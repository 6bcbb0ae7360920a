// Rows by MPI_Alltoallv: permuted into the order of ranks, sent, and regrouped by local expert.
//
// It runs wherever MPI does; with one ep rank nothing travels and dispatch is a gather.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/moe/dispatch_plan.hpp"
#include "moeloom/moe/row_buffer.hpp"
#include "moeloom/moe/travelling.hpp"

namespace moeloom {

/// The functions of Dispatcher, whose header says what they do.
class AlltoallDispatch {
 public:
  AlltoallDispatch(const Communicator& ep, Index num_experts);

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  void prepare(RowBuffer& rows, Index count, Index cols) const { rows.reshape_uninitialised(count, cols); }
  void dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                std::optional<ScalarsOut> scalars);
  void combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
               std::optional<ScalarsBack> scalars);

 private:
  void send_scalars(const DispatchPlan& plan, ScalarsOut scalars) const;
  void return_scalars(const DispatchPlan& plan, ScalarsBack scalars) const;

  const Communicator* ep_;
  Index num_experts_;
  Matrix leaving_;   // rows in the order in which they leave
  Matrix arriving_;  // rows in the order in which they arrive
};

}  // namespace moeloom
