// Rows that the ranks of a node write and read in each other's memory chunk after chunk, by counters.
//
//   open   show where my rows land and where what becomes of them will lie    meet
//   tell   how far I have come with writing others' rows, or with my own results
//   all    whether every rank of the node has come so far
//
// Nobody waits here but in open(). Counters only grow, over trips too, and each has one writer, so that a
// rank which is a trip ahead has reached all of the last one. What is open belongs to the others until its
// owner opens again, which meets: nobody is then in the trip before.
#pragma once

#include "moe/dispatch/row_buffer.hpp"

#include <atomic>
#include <vector>

namespace moeloom {

class NodeChunks {
 public:
  /// most: the largest number that is told of. Collective over nothing.
  NodeChunks(std::shared_ptr<NodeMemory> memory, Index most);
  /// Of a mailbox that it needs.
  static Index mailbox_bytes();

  NodeMemory& memory() const { return *memory_; }
  /// Makes rows and results [count, cols] in this rank's memory, contents unspecified, and [count] numbers
  /// beside each. Collective over the node.
  void open(RowBuffer& rows, RowBuffer& results, Index count, Index cols);

  /// Of a member of the node, whose rows others write, and whose results they read.
  struct Member {
    float* rows;
    float* row_scalars;
    const float* results;
    const float* result_scalars;
  };
  const Member& member(Index member) const { return members_[at(member)]; }
  /// This rank's numbers beside rows and results.
  std::span<const float> row_scalars() const { return row_scalars_.view().flat(); }
  std::span<float> result_scalars() { return result_scalars_.view().flat(); }

  enum Counter : std::size_t { kWritten, kComputed };
  /// What this rank did before, every rank that then sees `count` of this trip sees too. Counts do not fall.
  void tell(Counter counter, Index count);
  bool all(Counter counter, Index least) const { return behind(counter, least) < 0; }
  /// A member that has not told of `least` yet; -1: none.
  int behind(Counter counter, Index least) const;

 private:
  struct Flags;

  std::shared_ptr<NodeMemory> memory_;
  Index most_;
  std::uint64_t base_ = 0;  // what counters had reached when this trip began
  NodeBlock flags_;
  RowBuffer row_scalars_, result_scalars_;
  std::vector<Member> members_;
  std::vector<Flags*> flags_of_;
};

}  // namespace moeloom
