// Rows where a token has more experts than there are ranks: every rank gets every token once, which is fewer
// rows than one a slot, and picks those of its experts.
//
// Outputs return as in alltoall_dispatch.hpp, one a slot, because a token's sum runs in slot order.
#pragma once

#include "moeloom/moe/dispatch/alltoall_dispatch.hpp"

namespace moeloom {

/// The functions that WholeTrip asks for, whose header says what they do.
class AllgatherDispatch {
 public:
  AllgatherDispatch(const Communicator& ep, Index num_experts, NodeMap nodes = {},
                    WireDType wire = WireDType::kFp32);

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  void prepare(RowBuffer& rows, Index count, Index cols) const { back_.prepare(rows, count, cols); }
  void dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                std::optional<ScalarsOut> scalars);
  void combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
               std::optional<ScalarsBack> scalars) {
    back_.combine(plan, rows, tokens, mode, scalars);
  }
  std::int64_t network_bytes() const { return back_.network_bytes() + network_bytes_; }
  static double bytes_of(const TripShape& trip) {
    return rows_bytes(trip.tokens * trip.ranks, {trip.cols}) + AlltoallDispatch::bytes_of(trip);
  }

 private:
  void count(const DispatchPlan& plan, Index cols, bool with_scalars);

  const Communicator* ep_;
  Index num_experts_;
  NodeMap nodes_;
  WireDType wire_;
  AlltoallDispatch back_;
  Matrix gathered_;  // the tokens of all ranks, as they travel
  std::int64_t network_bytes_ = 0;
};

}  // namespace moeloom
