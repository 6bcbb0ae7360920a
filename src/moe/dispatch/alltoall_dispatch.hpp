// Rows from rank to rank, chunk after chunk (chunk_plan.hpp): permuted into the order of ranks, sent, and
// regrouped by local expert.
//
//   begin       all receives; rows leave, the first chunk's first
//   await(c)    the rows of a chunk have arrived, and land
//               ... the caller computes, and calls progress() now and then ...
//   send_back(c)  what became of them leaves
//   finish      everything is back, and is summed
//
// A message is a chunk's rows for one rank; the numbers beside them, where there are some, are another. Rows
// go home from where they arrived, and where they are one chunk, to where they left. MPI moves messages
// inside its calls alone, so who computes must ask for it. It runs wherever MPI does; with one rank nothing
// travels, and dispatch is a gather. With bf16 on the wire rows that stay on their rank are rounded with the
// others, so that it does not matter which they are.
#pragma once

#include "base/interlude.hpp"
#include "comm/messages.hpp"
#include "moe/dispatch/round_trip.hpp"
#include "moe/dispatch/wire.hpp"

namespace moeloom {

/// The functions of Dispatcher, whose header says what they do.
class AlltoallDispatch {
 public:
  /// chunks: at least 1, the same on all ranks. nodes: of the ranks of ep, to count what crosses; without
  /// any, all are on one.
  AlltoallDispatch(const Communicator& ep, Index num_experts, Index chunks, NodeMap nodes = {},
                   WireDType wire = WireDType::kFp32);

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  /// The same, where all ranks know the counts of all [ep, experts].
  void plan(std::span<const std::int32_t> topk_idx, Index top_k, const SourceCounts& counts,
            DispatchPlan& plan);
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
    const double leaving = rows_bytes(trip.slots(), {trip.cols});
    return (trip.chunks > 1 ? 2 : 1) * leaving + rows_bytes(trip.rows.at_once, {trip.cols});
  }

 private:
  /// Rows as they travel, and numbers beside them.
  struct Travelling {
    Matrix rows, numbers;
    void reshape_uninitialised(Index count, Index width, bool with_numbers);
  };
  void cut(DispatchPlan& plan) const;
  void gather(const RoundTrip& trip) const;
  void receive_rows(const RoundTrip& trip);
  void receive_results(const RoundTrip& trip);
  void receive(Index from, Travelling& into, Stretch places, bool numbers);
  void pack(const RoundTrip& trip, Stretch places);
  void send(Index to, Travelling& from, Stretch places, bool numbers);
  /// What comes home.
  Travelling& home() { return chunks_ == 1 ? leaving_ : returning_; }
  /// [P, D] by place of leaving.
  ConstMatrixView returned(const RoundTrip& trip);
  template <typename Visit>
  void for_each_peer(Visit visit) const;

  const Communicator* ep_;
  Index num_experts_;
  Index chunks_;
  NodeMap nodes_;
  WireDType wire_;
  // Out in the order in which they leave, as they arrive and again to go home, and home.
  Travelling leaving_, arriving_, returning_;
  Index letters_ = 0;  // of other ranks, a chunk
  Matrix widened_;     // rows that came home as bf16
  std::int64_t network_bytes_ = 0;
  std::unique_ptr<Messages> messages_;  // ends before the rows that it reads and writes
};

}  // namespace moeloom
