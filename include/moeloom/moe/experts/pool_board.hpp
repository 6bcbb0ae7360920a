// What the ranks of a node have to do for their experts, listed where all of them see it and take from it.
//
// A rank writes its board, and meets. Until the next meeting every rank takes from every board: a counter
// that only grows says what was taken. Gradients of an expert read what its blocks write, so each expert
// counts the blocks that are done; a list holds all its blocks before any gradient, and a block waits for
// nobody, so what a gradient waits for is always under way.
#pragma once

#include "moeloom/kernels/grouped_matmul.hpp"
#include "moeloom/moe/dispatch/row_buffer.hpp"

#include <array>
#include <optional>
#include <span>
#include <vector>

namespace moeloom {

/// Since the pool was made.
struct PoolCounts {
  Index tasks = 0;       // that this rank ran
  Index for_others = 0;  // of those, in another rank's experts
};
inline PoolCounts operator-(const PoolCounts& a, const PoolCounts& b) {
  return {a.tasks - b.tasks, a.for_others - b.for_others};
}

struct PoolTask {
  enum class Kind { kBlock, kGateUpFactors, kDownFactors, kGateUpPanel, kDownPanel };

  Kind kind = Kind::kBlock;
  Index expert = 0;            // of those that the owner holds
  Index row = 0, rows = 0;     // of all that the owner received: a block's, or the expert's
  Index column = 0, cols = 0;  // a panel's, of the weight
  Index blocks = 0;            // of the expert, which come before what is no block
};

/// Which tasks a pass has.
struct PoolWork {
  bool gate_up_factors = false, down_factors = false;  // of adapters
  bool gate_up_panels = false, down_panels = false;
  Index hidden = 0, inter = 0;  // columns of the two panels' gradients: D and F, or 1 of a bias alone
  bool gradients_of_empty_experts = false;  // zeros are to be written
};

/// Experts with most rows first, so that the last tasks are small; all blocks, then all gradients. Rows are
/// cut at multiples of kGemmRows of an expert, columns at multiples of kGemmColumns, as often as the rows pay
/// for it. Gradients of an expert's factors are one task a product, before its panels: B's is a sum over rows
/// with too few columns to cut.
void list_pool_tasks(const GroupedRows& rows, const PoolWork& work, std::vector<PoolTask>& tasks);

/// Where all that belongs to a rank's experts begins in its memory; 0 for what a pass has not.
struct PoolPlaces {
  struct Weight {
    Index offset = 0;
    DType type = DType::kF32;
  };
  /// Of one addition to a product (kernels/low_rank.hpp), stacked as the owner's experts.
  struct Factors {
    Index a = 0, b = 0, d_a = 0, d_b = 0;
    Index column = 0, out = 0, rank = 0;  // rank 0: there is no such addition
    float scale = 1;
    bool trained = false;
  };
  /// Gate and up may be two modules of a file.
  using Adapter = std::array<Factors, 2>;

  Weight gate_up = {}, down = {};   // masters
  Index d_gate_up = 0, d_down = 0;  // their gradients
  Index gate_up_bias = 0, down_bias = 0, d_gate_up_bias = 0, d_down_bias = 0;
  Index rows = 0, weights = 0, z = 0, activated = 0, output = 0;  // X, its weights, Z, A, Y or dX
  Index d_rows = 0, d_z = 0, d_weights = 0;                       // dY, dZ
  Adapter gate_up_adapter = {}, down_adapter = {};
  Index d_low_gate_up = 0, d_low_down = 0;  // dU of all additions
};

/// open() and close() are collective over the ranks of the memory.
class PoolBoard {
 public:
  explicit PoolBoard(std::shared_ptr<NodeMemory> memory);
  /// Of a mailbox that it needs.
  static Index mailbox_bytes();

  /// Shows this rank's list; `rows` are those of its experts.
  void open(std::span<const PoolTask> tasks, const GroupedRows& rows, const PoolPlaces& places);
  /// All tasks of all boards are done, and what they wrote is seen.
  void close() { memory_->meet(); }

  int owners() const { return memory_->size(); }
  /// The next task of an owner, which is then this caller's; none when all were taken. From any thread.
  std::optional<PoolTask> take(int owner) const;
  void block_is_done(int owner, Index expert) const;
  /// Until all blocks of a gradient's expert are done.
  void wait_for_blocks(int owner, const PoolTask& gradient) const;

  const PoolPlaces& places(int owner) const;
  /// A place of them in this process.
  template <typename Number>
  Number* at_place(int owner, Index offset) const {
    return reinterpret_cast<Number*>(memory_->address(owner, offset));
  }
  /// Rows of one expert, by source.
  GroupedRows rows_of(int owner, Index expert) const;

 private:
  struct Head;
  Head& head(int owner) const;

  std::shared_ptr<NodeMemory> memory_;
  RowBuffer mine_;
  std::vector<std::byte*> boards_;  // by rank, since the last open()
};

}  // namespace moeloom
