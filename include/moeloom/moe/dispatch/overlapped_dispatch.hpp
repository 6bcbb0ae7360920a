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
#include "moeloom/moe/dispatch/alltoall_dispatch.hpp"

namespace moeloom {

/// Rows out to their experts and what became of them back: one layer's forward, or its backward. Everything
/// must live, and what leaves be left alone, until the trip is finished.
struct RoundTrip {
  const DispatchPlan& plan;
  ConstMatrixView tokens;  // [T, D], that leave
  RowBuffer& rows;         // [R, D], as they land
  std::optional<ScalarsOut> scalars_out;
  RowBuffer& results;  // [R, D], made of them; prepared by the dispatcher
  MatrixView sums;     // [T, D], of a token's results in slot order, written or added
  Write mode = Write::kReplace;
  std::optional<ScalarsBack> scalars_back = std::nullopt;
};

/// The functions of Dispatcher, whose header says what they do.
class OverlappedDispatch {
 public:
  /// chunks: at least 1, the same on all ranks.
  OverlappedDispatch(const Communicator& ep, Index num_experts, Index chunks, NodeMap nodes = {},
                     WireDType wire = WireDType::kFp32);

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  void prepare(RowBuffer& rows, Index count, Index cols) const { whole_.prepare(rows, count, cols); }
  void dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                std::optional<ScalarsOut> scalars) {
    whole_.dispatch(plan, tokens, rows, scalars);
  }
  void combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
               std::optional<ScalarsBack> scalars) {
    whole_.combine(plan, rows, tokens, mode, scalars);
  }
  DispatchTraffic traffic() const;

  Index chunks() const { return chunks_; }
  void begin(const RoundTrip& trip);
  bool arrived(Index chunk);
  void await(const RoundTrip& trip, Index chunk);
  void send_back(const RoundTrip& trip, Index chunk);
  void finish(const RoundTrip& trip);
  /// For as long as the dispatcher lives.
  Interlude progress() const;

 private:
  void receive_all(const ChunkPlan& chunks);
  void pack(const RoundTrip& trip, Stretch places);
  void send(Index to, Matrix& rows, Stretch places, Index cols);
  template <typename Visit>
  void for_each_peer(Visit visit) const;

  const Communicator* ep_;
  Index chunks_;
  Index peers_;  // other ranks, each with one message a chunk
  NodeMap nodes_;
  WireDType wire_;
  AlltoallDispatch whole_;
  // Rows as they travel, with the numbers beside them: out in the order in which they leave, as they arrive
  // and again to go home, and home.
  Matrix leaving_, arriving_, returning_;
  Matrix widened_;  // rows that came home as bf16
  DispatchTraffic traffic_;
  std::unique_ptr<Messages> messages_;  // ends before the rows that it reads and writes
};

}  // namespace moeloom
