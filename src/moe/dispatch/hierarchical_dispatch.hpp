// Rows between nodes, chunk after chunk (chunk_plan.hpp): each token crosses once to each node that holds
// some of its experts, and is handed out there through the node's memory.
//
// Where all ranks lie on one node, as of `shared`, nothing crosses, and counts are read from its memory. Each
// row is written once, where grouped matmul reads it: every rank knows every count, hence the final row of
// each of its slots, and writes each token there while the token is in cache. A token's owner then reads its
// K rows where the experts wrote them and sums them in slot order. So nothing is packed, regrouped or
// buffered: T rows are read and R written on the way out, R read and T written on the way back.
//
//   plan        counts; to each other node where the copies of my tokens land
//   begin       tokens leave for other nodes, with the first chunk that needs
//               them; own node's rows are written
//   await_near  rows of this node's tokens are in place, for all experts
//   await(c)    the rows of a chunk are in place, written by this node's ranks
//               ... the caller computes, and calls progress() now and then ...
//   send_back(c)  the node is told; what other nodes are due leaves when all of
//               the node have come so far
//   finish      everything is back, and is summed
//
// A rank sends one message a chunk to one rank of every other node, whatever their number of ranks. Inside
// the node ranks meet once a trip, in begin; after that counters say how far each has come (node_chunks.hpp).
// What a rank does for the others of its node meanwhile: chunk_courier.hpp.
//
// Where there are several nodes, nobody meets in plan, but nobody has the sums of all counts before every
// rank has left the combine before it.
#pragma once

#include "base/interlude.hpp"
#include "moe/dispatch/round_trip.hpp"

#include <memory>

namespace moeloom {

class ChunkCourier;

struct HierarchicalSettings {
  NodeMap nodes = {};                            // of the ranks of ep
  std::shared_ptr<NodeMemory> memory = nullptr;  // of those of this rank's node, in their order
  CombineMode combine = CombineMode::kExact;
  WireDType wire = WireDType::kFp32;
};

/// The functions of Dispatcher, whose header says what they do.
class HierarchicalDispatch {
 public:
  /// chunks: at least 1, the same on all ranks.
  HierarchicalDispatch(const Communicator& ep, Index num_experts, Index chunks,
                       HierarchicalSettings settings);
  HierarchicalDispatch(HierarchicalDispatch&&) noexcept;
  HierarchicalDispatch& operator=(HierarchicalDispatch&&) noexcept;
  ~HierarchicalDispatch();
  /// Of the node memory's mailbox.
  static Index mailbox_bytes(Index num_experts);

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  /// The same, where all ranks know the counts of all [ep, experts].
  void plan(std::span<const std::int32_t> topk_idx, Index top_k, const SourceCounts& counts,
            DispatchPlan& plan);
  Index chunks() const { return chunks_; }
  void begin(const RoundTrip& trip);
  /// Of this node, if there are others.
  Stretch near_ranks() const { return near_; }
  void await_near(const RoundTrip& trip);
  bool arrived(Index chunk);
  void await(const RoundTrip& trip, Index chunk);
  void send_back(const RoundTrip& trip, Index chunk);
  void finish(const RoundTrip& trip);
  /// For as long as the dispatcher lives.
  Interlude progress() const;
  std::int64_t network_bytes() const;
  /// On one node counts, and numbers beside rows; the others' rows are theirs. Else sums, as many as copies,
  /// and tokens, once a node.
  static double bytes_of(const TripShape& trip) {
    if (trip.nodes == 1)
      return array_bytes(trip.ranks * trip.experts, sizeof(Index)) + 2 * array_bytes(trip.rows.at_once);
    const Index crossing = trip.tokens * std::min(trip.top_k, trip.nodes - 1);
    return rows_bytes(trip.slots(), {trip.cols}) + rows_bytes(trip.rows.at_once, {trip.cols}) +
           rows_bytes(crossing, {trip.cols, trip.cols});
  }

 private:
  bool crosses() const;
  /// What all ranks of this node, which has all, show each other. Collective over ep.
  LandingCounts counts_of_node(const DispatchPlan& plan) const;
  void plan_crossing(std::span<const std::int32_t> topk_idx, const LandingCounts& counts,
                     std::span<const Index> copies_per_route, DispatchPlan& plan);
  std::vector<CrossingCopy> exchange_copies(const CrossingPlan& crossing,
                                            std::span<const Index> copies_per_route);
  /// Into chunks, of which rows begin on each rank where first_rows [ep, chunks + 1] says.
  std::vector<std::int64_t> cut(DispatchPlan& plan) const;
  void write_own_node(const RoundTrip& trip) const;
  void sum_tokens(const RoundTrip& trip) const;
  void sum_own_node(const RoundTrip& trip) const;
  void take_scalars(const RoundTrip& trip) const;
  void take_row_scalars(const RoundTrip& trip, Stretch rows) const;

  const Communicator* ep_;
  Index num_experts_;
  Index chunks_;
  Stretch near_;
  std::int64_t planning_bytes_ = 0;  // that left the node
  std::unique_ptr<ChunkCourier> courier_;
};

}  // namespace moeloom
