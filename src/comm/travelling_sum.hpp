// The sum of a stretch of gradients over ranks, on its way.
//
// Each rank sends every other one what that one owns, and adds up, along the tree, what it receives. Where
// the ranks of every node are a subtree, they add up among themselves first, and what crosses a link is
// their sum.
#pragma once

#include "comm/messages.hpp"
#include "moeloom/base/stretch.hpp"
#include "moeloom/comm/communicator.hpp"
#include "moeloom/tensor/stored_rows.hpp"

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

namespace moeloom {

/// What is to be summed.
struct StretchOfGradients {
  const Communicator* ranks = nullptr;
  std::span<std::byte> gradients;   // left alone until `done`
  Storage stored = Storage::kFp32;  // or kBf16: added up in fp32, and rounded once
  std::span<const Index> offsets;   // [ranks + 1], of what each rank owns
  /// The owned part holds the sum.
  std::function<void()> done;
};

class TravellingSum {
 public:
  /// Everything that it receives is awaited from now on, and what it has leaves.
  TravellingSum(StretchOfGradients stretch, Matrix memory);

  /// Adds up what has come from the ranks of this node for one more node, which then leaves; without waiting.
  /// Whether all has left. Sums of one group are passed on in the order in which they began.
  bool pass_on();
  /// Whether all has come and gone.
  bool has_arrived();
  /// Waits until it has.
  void await();
  /// Adds up so many of the owned numbers that are left. -> how many those were; then none is left.
  Index add_up(Index most);
  bool is_added_up() const { return added_ == mine_.size(); }
  /// Says that the sum is there, and gives its memory away.
  Matrix end();
  /// That this memory has, at most, where each rank owns `owned` of a stretch; nodes: of `each` ranks, which
  /// are subtrees.
  static Index numbers(Index stretch, Index owned, Index nodes, Index each) {
    return (each > 1 ? each * std::min(stretch, nodes * owned) : 0) + nodes * owned;
  }

 private:
  /// Ranks of a node, and nodes; each rank is a node of its own where nodes are no subtrees, and for bf16,
  /// whose sums of sums would be rounded twice.
  struct Nodes {
    Nodes(const Communicator& ranks, Storage stored);

    Index each, count, mine, member;
  };

  Stretch part_of(Index rank) const { return {of_.offsets[at(rank)], of_.offsets[at(rank + 1)]}; }
  Index number_bytes() const { return bytes_of(of_.stored); }
  std::span<std::byte> gradients_for(Index rank) const;
  /// The node whose sum is made `turn`th: this rank's own is the last.
  Index node_in(Index turn) const { return (nodes_.mine + 1 + turn) % nodes_.count; }
  /// The rank of this one's number there. It owns what this rank adds up for it, and the other way round.
  Index partner_on(Index node) const { return node * nodes_.each + nodes_.member; }
  Index mate(Index member) const { return nodes_.mine * nodes_.each + member; }
  /// What a member of this node has for the partner in that turn; the first one's place becomes the sum.
  std::span<std::byte> within(Index turn, Index member);
  /// What a node has for this rank.
  std::span<std::byte> across(Index node);
  void exchange_within();
  void add_up_within();
  /// Blocks of `count` numbers, `stride` apart -> their tree sum.
  void sum_blocks(std::span<const std::byte> first, Index blocks, Index stride, Index count,
                  std::byte* sum) const;

  StretchOfGradients of_;
  Nodes nodes_;
  Stretch mine_;                       // of the gradients
  std::vector<Index> within_offsets_;  // [nodes + 1], by turn
  Matrix memory_;                      // as bytes: [nodes, each] of within, [nodes] of across
  Messages messages_;                  // first those of this node, by turn
  Index turn_ = 0;                     // nodes that have been passed on to
  Index added_ = 0;                    // of the owned numbers
};

}  // namespace moeloom
