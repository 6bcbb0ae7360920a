// Memory of each rank of a node that every rank of it reads and writes in place, and how they take turns.
//
// A rank's memory is one anonymous file (memfd) that the others open through /proc/<pid>/fd and map whole,
// with far more address space than pages. So it grows by its owner alone: no collective, no data moved, no
// address changed, and a block that the system cannot back is an error, not a signal. The file has no name:
// what a killed rank leaves is nothing. Addresses are dealt anew once their block was given back; together
// the ranks have 16 times the node's memory of them, at most 4 TiB or twice the memory, and a block that does
// not fit is an error that says so.
//
// Turns. meet() signals and waits until every rank has signalled as often. Whatever a rank wrote before its
// n-th signal, the others see after their n-th meeting, and may use until their next signal; once a rank has
// met n + 1 times, nobody uses what it showed at n. A mailbox therefore has two sides, written in turn, and a
// block is given back to the system one meeting after it was released.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace moeloom {

class NodeMemory {
 public:
  /// Collective over `node`, whose ranks must share a machine. Throws AgreedError on every rank if one cannot
  /// make its memory or open another's, as where processes do not see each other in /proc.
  NodeMemory(const Communicator& node, Index mailbox_bytes);
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  int rank() const { return rank_; }
  /// On which waits are shown; may be null.
  PositionBoard* board() const { return board_; }
  /// A rank of the node as the board shows it; -1 where there is none.
  Index shown_rank(int rank) const { return shown_ranks_[at(rank)]; }
  int size() const { return static_cast<int>(maps_.size()); }
  /// A place in some rank's memory, as this process sees it.
  std::byte* address(int rank, Index offset) const { return maps_[at(rank)] + offset; }
  /// Where every rank finds, in this rank's memory, what lies there at `place`; none: it lies elsewhere.
  std::optional<Index> offset_of(const void* place) const;

  /// What the others read in inbox(rank()) after the next meeting.
  std::span<std::byte> outbox();
  /// What `rank` wrote into its outbox before the last meeting; to be read before the next.
  std::span<const std::byte> inbox(int rank) const;
  /// Collective over the node. Waits without sleeping, but leaves the processor to others soon.
  void meet();

  /// Bytes that the system holds for this rank's blocks.
  Index bytes() const { return bytes_; }

 private:
  friend class NodeBlock;
  struct Extent {
    Index offset = 0, bytes = 0;
  };
  Extent allocate(Index bytes);
  void release(Extent extent) noexcept;
  void map(const Communicator& node);
  void unmap() noexcept;
  void give_back_released() noexcept;
  std::optional<Extent> take_free(Index bytes, Index unit);
  Extent take_at_end(Index bytes, Index unit);
  void make_free(Extent extent);

  int rank_;
  PositionBoard* board_;
  int file_ = -1;
  Index reserve_ = 0;  // address space of each rank's memory
  Index mailbox_bytes_;
  Index end_ = 0;  // where the next block begins
  Index bytes_ = 0;
  Index blocks_ = 0;  // that were not given back
  std::uint64_t meetings_ = 0;
  std::vector<std::byte*> maps_;
  std::vector<Index> shown_ranks_;
  std::vector<Extent> released_;  // since the last meeting
  std::vector<Extent> free_;      // before end_, by offset; no two touch
};

/// A wait for what other ranks of the node do, between two looks: it does not sleep, but leaves the processor
/// to others soon. A rank that died does nothing: as in every collective it is the launcher that then ends
/// the job. A wait that takes longer is shown on the board, if there is one, as a call of "node memory".
class NodeWait {
 public:
  explicit NodeWait(PositionBoard* board) : board_(board) {}
  NodeWait(const NodeWait&) = delete;
  NodeWait& operator=(const NodeWait&) = delete;
  ~NodeWait();
  /// waits_for: the world rank that is awaited now; -1: none in particular.
  void pause(Index waits_for = -1);

 private:
  PositionBoard* board_;
  int pauses_ = 0;
  std::optional<Index> shown_;
};

/// Until a flag that a rank of the node raises, waits_for as above, is at least `least`.
void wait_until(const std::atomic<std::uint64_t>& flag, std::uint64_t least, PositionBoard* board,
                Index waits_for = -1);

/// Bytes of this rank's memory, page by page its own until it dies.
class NodeBlock {
 public:
  /// Of no bytes, nowhere.
  NodeBlock() = default;
  /// Not initialised. Throws Error with the bytes if the node cannot give them.
  NodeBlock(std::shared_ptr<NodeMemory> memory, Index bytes)
      : memory_(std::move(memory)), extent_(memory_->allocate(bytes)) {}
  NodeBlock(NodeBlock&& other) noexcept = default;
  NodeBlock& operator=(NodeBlock&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(extent_, other.extent_);
    return *this;
  }
  ~NodeBlock() {
    if (memory_) memory_->release(extent_);
  }

  /// Where every rank finds it in this rank's memory.
  Index offset() const { return extent_.offset; }
  Index bytes() const { return extent_.bytes; }
  /// Null where there are none.
  std::byte* data() const { return memory_ ? memory_->address(memory_->rank(), extent_.offset) : nullptr; }

 private:
  std::shared_ptr<NodeMemory> memory_;
  NodeMemory::Extent extent_;
};

}  // namespace moeloom
