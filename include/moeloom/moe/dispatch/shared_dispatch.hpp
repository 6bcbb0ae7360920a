// Rows through memory that the ranks of a node share: each row is written once, where grouped matmul reads
// it.
//
// Dispatch pushes: every rank knows every count, hence the final row of each of its slots in the memory of
// the rank that holds the expert, and writes each token there while the token is in cache. Combine pulls: a
// token's owner reads its K rows where the experts wrote them and sums them in slot order. So nothing is
// packed, regrouped or buffered: T rows are read and R written on the way out, R read and T written on the
// way back.
//
//   plan       show my counts                meet   read all counts
//   dispatch   open my rows                  meet   write into the others' rows     meet   mine are here
//   combine    show where my rows lie        meet   read the others' rows
//
// Who may use what until when: node_rows.hpp. Rows that combine shows may be written again after the next
// meeting, which is that of the plan or of the dispatch that follows.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/moe/dispatch/dispatch_plan.hpp"
#include "moeloom/moe/dispatch/node_rows.hpp"
#include "moeloom/tensor/gemm.hpp"

namespace moeloom {

/// The functions that WholeTrip asks for, whose header says what they do.
class SharedDispatch {
 public:
  /// `memory` is that of the ranks of ep, in their order, with a mailbox of at least mailbox_bytes().
  SharedDispatch(const Communicator& ep, Index num_experts, std::shared_ptr<NodeMemory> memory);
  static Index mailbox_bytes(Index num_experts);

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  /// The same, where all ranks know the counts of all [ep, experts].
  void plan(std::span<const std::int32_t> topk_idx, Index top_k, const SourceCounts& counts,
            DispatchPlan& plan);
  void prepare(RowBuffer& rows, Index count, Index cols) const { node_.prepare(rows, count, cols); }
  void dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                std::optional<ScalarsOut> scalars);
  void combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
               std::optional<ScalarsBack> scalars);
  std::int64_t network_bytes() const { return 0; }  // nothing leaves the node
  /// Of counts and numbers beside rows: the others' rows are theirs.
  static double bytes_of(const TripShape& trip) {
    return array_bytes(trip.ranks * trip.experts, sizeof(Index)) + 3 * array_bytes(trip.rows.at_once);
  }

 private:
  NodeRows node_;
  Index num_experts_;
};

}  // namespace moeloom
