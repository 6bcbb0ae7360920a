// Rows that travel while experts compute, chunk after chunk (chunk_plan.hpp).
//
//   begin       all receives; rows leave, the first chunk's first
//   await(c)    the rows of a chunk have arrived, and land
//               ... the caller computes, and calls progress() now and then ...
//   send_back(c)  what became of them leaves
//   finish      everything is back, and is summed
//
// A message is a chunk's rows for one rank, each with a number beside it: in both directions, so that rows go
// home from where they arrived. MPI moves messages inside its calls alone, so who computes must ask for it.
// Rows that stay on this rank are rounded with the others, as in alltoall_dispatch.hpp, whose exchange this
// is where nothing is computed meanwhile.
#pragma once

#include "moeloom/base/interlude.hpp"
#include "moeloom/comm/messages.hpp"
#include "moeloom/moe/dispatch/round_trip.hpp"
#include "moeloom/moe/dispatch/wire.hpp"

namespace moeloom {

/// The functions of Dispatcher, whose header says what they do.
class OverlappedDispatch {
 public:
  /// chunks: at least 1, the same on all ranks.
  OverlappedDispatch(const Communicator& ep, Index num_experts, Index chunks, NodeMap nodes = {},
                     WireDType wire = WireDType::kFp32);

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  Index chunks() const { return chunks_; }
  void begin(const RoundTrip& trip);
  Stretch near_ranks() const { return {}; }
  void await_near(const RoundTrip& /*trip*/) {}
  bool arrived(Index chunk);
  void await(const RoundTrip& trip, Index chunk);
  void send_back(const RoundTrip& trip, Index chunk);
  void finish(const RoundTrip& trip);
  /// For as long as the dispatcher lives.
  Interlude progress() const;
  std::int64_t network_bytes() const { return network_bytes_; }
  static double bytes_of(const TripShape& trip) {
    return rows_bytes(trip.slots(), {trip.cols, trip.cols}) + rows_bytes(trip.rows.at_once, {trip.cols});
  }

 private:
  void receive_all(const ChunkPlan& chunks, bool returning);
  void pack(const RoundTrip& trip, Stretch places);
  void send(Index to, Matrix& rows, Stretch places);
  template <typename Visit>
  void for_each_peer(Visit visit) const;

  const Communicator* ep_;
  Index num_experts_;
  Index chunks_;
  Index peers_;  // other ranks, each with one message a chunk
  NodeMap nodes_;
  WireDType wire_;
  // Rows as they travel, with the numbers beside them: out in the order in which they leave, as they arrive
  // and again to go home, and home.
  Matrix leaving_, arriving_, returning_;
  Matrix widened_;  // rows that came home as bf16
  std::int64_t network_bytes_ = 0;
  std::unique_ptr<Messages> messages_;  // ends before the rows that it reads and writes
};

}  // namespace moeloom
