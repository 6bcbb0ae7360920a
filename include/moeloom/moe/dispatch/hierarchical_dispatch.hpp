// Rows between nodes: each token crosses once to each node that holds some of its experts, and is handed out
// there through the node's memory.
//
// A rank sends one message to one rank of every other node, whatever their number of ranks. Inside a node
// rows move as in shared_dispatch.hpp, by the same protocol, and those of the own node are written while the
// others travel.
//
//   plan       counts; to each other node where the copies of my tokens land
//   dispatch   open my rows   meet   send my tokens; write into my node's rows; hand out what arrives   meet
//   combine    show my rows   meet   send back the sums of what I handed out; sum what my tokens are due
//
// Nobody meets in plan, but nobody has the sums of all counts before every rank has left the combine before
// it.
#pragma once

#include "moeloom/comm/messages.hpp"
#include "moeloom/moe/dispatch/dispatch_plan.hpp"
#include "moeloom/moe/dispatch/node_rows.hpp"
#include "moeloom/moe/dispatch/parcel.hpp"
#include "moeloom/tensor/gemm.hpp"

namespace moeloom {

struct HierarchicalSettings {
  NodeMap nodes = {};                            // of the ranks of ep
  std::shared_ptr<NodeMemory> memory = nullptr;  // of those of this rank's node, in their order
  CombineMode combine = CombineMode::kExact;
  WireDType wire = WireDType::kFp32;
};

/// The functions that WholeTrip asks for, whose header says what they do.
class HierarchicalDispatch {
 public:
  HierarchicalDispatch(const Communicator& ep, Index num_experts, HierarchicalSettings settings);

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  /// The same, where all ranks know the counts of all [ep, experts].
  void plan(std::span<const std::int32_t> topk_idx, Index top_k, const SourceCounts& counts,
            DispatchPlan& plan);
  void prepare(RowBuffer& rows, Index count, Index cols) const { node_.prepare(rows, count, cols); }
  void dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                std::optional<ScalarsOut> scalars);
  void combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
               std::optional<ScalarsBack> scalars);
  std::int64_t network_bytes() const { return network_bytes_; }
  /// Enough for the messages, of a row a slot and a row that lands.
  static double bytes_of(const TripShape& trip) {
    return rows_bytes(trip.slots(), {trip.cols}) + rows_bytes(trip.rows.at_once, {trip.cols});
  }

 private:
  void plan_crossing(std::span<const std::int32_t> topk_idx, const LandingCounts& counts,
                     std::span<const Index> copies_per_route, DispatchPlan& plan);
  std::vector<CrossingCopy> exchange_copies(const CrossingPlan& crossing,
                                            std::span<const Index> copies_per_route);
  void receive_all(std::span<const Parcel> parcels, Messages& messages);
  void send_tokens(const DispatchPlan& plan, ConstMatrixView tokens, const std::optional<ScalarsOut>& scalars,
                   Messages& messages);
  void write_own_node(const DispatchPlan& plan, ConstMatrixView tokens,
                      const std::optional<ScalarsOut>& scalars) const;
  void hand_out(const DispatchPlan& plan, const Parcel& parcel, Index cols);
  void send_sums(const CrossingPlan& crossing, Index cols, bool with_scalars, Messages& messages);
  void sum_copies(const CrossingPlan& crossing, Index sum, Index cols, float* wire);
  void locate_sources(std::span<const Parcel> arriving, Index cols);
  void receive_sums(std::span<const Parcel> arriving, Index cols, Messages& messages);
  void sum_tokens(const DispatchPlan& plan, Index cols, MatrixView tokens, Write mode) const;
  void take_scalars(const DispatchPlan& plan, std::span<const Parcel> arriving, ScalarsBack scalars) const;
  void send(Index to, std::span<const float> values, Messages& messages);

  const Communicator* ep_;
  Index num_experts_;
  HierarchicalSettings settings_;
  CrossingRoutes routes_;
  NodeRows node_;
  Matrix leaving_, arriving_;          // messages: one float a row
  Matrix widened_;                     // sums that came as bf16
  Matrix scratch_;                     // a row a thread
  std::vector<const float*> sources_;  // where the summands of each source begin
  std::int64_t network_bytes_ = 0;
};

}  // namespace moeloom
