// Rows of `hierarchical` that travel while experts compute, chunk after chunk (chunk_plan.hpp).
//
//   begin       tokens leave for other nodes, each once, with the first chunk that needs it; own node's rows
//               are written
//   await_near  rows of this node's tokens are in place, for all experts
//   await(c)    the rows of a chunk are in place, written by this node's ranks
//               ... the caller computes, and calls progress() now and then ...
//   send_back(c)  the node is told; what other nodes are due leaves when all of the node have come so far
//   finish      everything is back, and is summed
//
// Inside the node ranks meet once a trip, in begin; after that counters say how far each has come
// (node_chunks.hpp). What a rank does for the others of its node meanwhile: chunk_courier.hpp.
#pragma once

#include "moeloom/base/interlude.hpp"
#include "moeloom/moe/dispatch/hierarchical_dispatch.hpp"
#include "moeloom/moe/dispatch/round_trip.hpp"

namespace moeloom {

class ChunkCourier;

/// The functions of Dispatcher, whose header says what they do.
class OverlappedHierarchical {
 public:
  /// chunks: at least 1, the same on all ranks.
  OverlappedHierarchical(const Communicator& ep, Index num_experts, Index chunks,
                         HierarchicalSettings settings);
  OverlappedHierarchical(OverlappedHierarchical&&) noexcept;
  OverlappedHierarchical& operator=(OverlappedHierarchical&&) noexcept;
  ~OverlappedHierarchical();
  /// Of the node memory's mailbox.
  static Index mailbox_bytes();

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
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
  /// Tokens that leave and arrive have places of their own beside sums.
  static double bytes_of(const TripShape& trip) {
    const Index crossing = trip.tokens * std::min(trip.top_k, trip.nodes - 1);
    return HierarchicalDispatch::bytes_of(trip) + rows_bytes(crossing, {trip.cols, trip.cols});
  }

 private:
  void write_own_node(const RoundTrip& trip) const;
  void sum_tokens(const RoundTrip& trip) const;
  void take_scalars(const RoundTrip& trip) const;
  void take_row_scalars(const RoundTrip& trip, Stretch rows) const;

  const Communicator* ep_;
  Index chunks_;
  Stretch near_;
  HierarchicalDispatch whole_;  // plans what crosses
  std::unique_ptr<ChunkCourier> courier_;
};

}  // namespace moeloom
