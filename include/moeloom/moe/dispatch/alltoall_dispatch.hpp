// Rows by MPI_Alltoallv: permuted into the order of ranks, sent, and regrouped by local expert.
//
// It runs wherever MPI does; with one ep rank nothing travels and dispatch is a gather. With bf16 on the wire
// rows that stay on their rank are rounded with the others, so that it does not matter which they are.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/moe/dispatch/dispatch_plan.hpp"
#include "moeloom/moe/dispatch/dispatch_traffic.hpp"
#include "moeloom/moe/dispatch/row_buffer.hpp"
#include "moeloom/moe/dispatch/wire.hpp"

namespace moeloom {

/// The plan of every way whose rows arrive before they land; plan.own is left alone. Collective over ep.
void plan_arrivals(const Communicator& ep, Index num_experts, std::span<const std::int32_t> topk_idx,
                   Index top_k, DispatchPlan& plan);

/// The functions that WholeTrip asks for, whose header says what they do.
class AlltoallDispatch {
 public:
  /// nodes: of the ranks of ep, to count what crosses; without any, all are on one.
  AlltoallDispatch(const Communicator& ep, Index num_experts, NodeMap nodes = {},
                   WireDType wire = WireDType::kFp32);

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  /// The same, where all ranks know the counts of all [ep, experts].
  void plan(std::span<const std::int32_t> topk_idx, Index top_k, const SourceCounts& counts,
            DispatchPlan& plan);
  void prepare(RowBuffer& rows, Index count, Index cols) const { rows.reshape_uninitialised(count, cols); }
  void dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                std::optional<ScalarsOut> scalars);
  void combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
               std::optional<ScalarsBack> scalars);

  /// The numbers alone.
  void send_scalars(const DispatchPlan& plan, ScalarsOut scalars);
  std::int64_t network_bytes() const { return network_bytes_; }
  static double bytes_of(const TripShape& trip) {
    return rows_bytes(trip.slots(), {trip.cols}) + rows_bytes(trip.rows.at_once, {trip.cols});
  }

 private:
  void count(std::span<const Index> rows_per_rank, Index cols, bool with_scalars);
  void sum_returned(const DispatchPlan& plan, Index cols, MatrixView tokens, Write mode);
  void return_scalars(const DispatchPlan& plan, ScalarsBack scalars);

  const Communicator* ep_;
  Index num_experts_;
  NodeMap nodes_;
  WireDType wire_;
  Matrix leaving_;                             // rows in the order in which they leave, as they travel
  Matrix arriving_;                            // rows in the order in which they arrive, likewise
  Matrix returned_;                            // rows that came back as bf16
  Matrix leaving_scalars_, arriving_scalars_;  // the numbers beside them
  std::int64_t network_bytes_ = 0;
};

}  // namespace moeloom
