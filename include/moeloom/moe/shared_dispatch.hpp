// Rows through memory that the ranks of a node share: each row is written once, where grouped matmul reads
// it.
//
// Dispatch pushes: every rank knows every count, hence the final row of each of its slots in the memory of
// the rank that holds the expert, and writes each token there while the token is in cache. Combine pulls: a
// token's owner reads its K rows where the experts wrote them and sums them in slot order. So nothing is
// packed, regrouped or buffered: T rows are read and R written on the way out, R read and T written on the
// way back.
//
//   plan       show my counts                        meet   read all counts
//   dispatch   show where my rows land               meet   write into the others' rows     meet   mine are
//   here combine    show where my rows lie                meet   read the others' rows
//
// What is shown may be used until the next meeting of who uses it (node_memory.hpp). So rows that combine
// shows may be written again after the next meeting, which is that of the plan or of the dispatch that
// follows; and nobody writes into rows that dispatch shows before their owner, who shows them, is done with
// them.
#pragma once

#include "moeloom/comm/communicator.hpp"
#include "moeloom/moe/dispatch_plan.hpp"
#include "moeloom/moe/row_buffer.hpp"
#include "moeloom/moe/travelling.hpp"
#include "moeloom/tensor/gemm.hpp"

#include <array>

namespace moeloom {

/// The functions of Dispatcher, whose header says what they do.
class SharedDispatch {
 public:
  /// `memory` is that of the ranks of ep, in their order, with a mailbox of at least mailbox_bytes().
  SharedDispatch(const Communicator& ep, Index num_experts, std::shared_ptr<NodeMemory> memory);
  static Index mailbox_bytes(Index num_experts);

  void plan(std::span<const std::int32_t> topk_idx, Index top_k, DispatchPlan& plan);
  void prepare(RowBuffer& rows, Index count, Index cols) const;
  void dispatch(const DispatchPlan& plan, ConstMatrixView tokens, RowBuffer& rows,
                std::optional<ScalarsOut> scalars);
  void combine(const DispatchPlan& plan, const RowBuffer& rows, MatrixView tokens, Write mode,
               std::optional<ScalarsBack> scalars);

 private:
  /// Shows where this rank's rows and scalars lie and learns the same of every rank.
  void exchange_places(const RowBuffer& rows, const RowBuffer& scalars);

  std::shared_ptr<NodeMemory> memory_;
  Index num_experts_;
  std::vector<std::int64_t> counts_;          // [ep, E]
  std::vector<float*> rows_of_, scalars_of_;  // [ep], of the exchange under way
  RowBuffer landed_scalars_;
  // By turns, because a peer may be reading those of one combine when the next begins.
  std::array<RowBuffer, 2> returning_scalars_;
};

}  // namespace moeloom
