// Rows, and the numbers beside them, that the ranks of a node write and read in each other's memory.
//
//   open    show where my rows land     meet   write into the others' rows
//   close                               meet   mine are here
//   show    show where my rows lie      meet   read the others' rows
//
// What is shown may be used until the next meeting of who uses it (node_memory.hpp). So rows that were shown
// to be read may be written again after the next meeting, and nobody writes into rows that are open before
// their owner, who opens them, is done with them.
#pragma once

#include "moeloom/moe/dispatch/row_buffer.hpp"

#include <array>

namespace moeloom {

/// open(), close() and show() are collective over the node.
class NodeRows {
 public:
  explicit NodeRows(std::shared_ptr<NodeMemory> memory);
  /// Of a mailbox that they need.
  static Index mailbox_bytes();

  NodeMemory& memory() const { return *memory_; }
  /// Makes `rows` [count, cols] in this rank's memory, contents unspecified.
  void prepare(RowBuffer& rows, Index count, Index cols) const;

  /// The same, for the others to write.
  void open(RowBuffer& rows, Index count, Index cols, bool with_scalars);
  void close(std::optional<ScalarsOut> scalars);
  /// Throws ShapeError for rows that were not prepared here.
  void show(const RowBuffer& rows, std::optional<ScalarsBack> scalars);

  /// Where the rows of a member of the node begin, and their numbers; of the exchange under way.
  float* rows_of(Index member) const { return rows_of_[at(member)]; }
  float* scalars_of(Index member) const { return scalars_of_[at(member)]; }

 private:
  void exchange_places(const RowBuffer& rows, const RowBuffer& scalars);

  std::shared_ptr<NodeMemory> memory_;
  std::vector<float*> rows_of_, scalars_of_;
  RowBuffer landed_scalars_;
  // By turns, because a peer may be reading those of one exchange when the next begins.
  std::array<RowBuffer, 2> returning_scalars_;
};

}  // namespace moeloom
