// The sum of a stretch of gradients over ranks, on its way.
//
// Each rank sends every other one what that one owns, and adds up, along the tree, what it receives. Where
// the ranks of every node are a subtree, they add up among themselves first, and what crosses a link is
// their sum.
#pragma once

#include "moeloom/base/stretch.hpp"
#include "moeloom/comm/communicator.hpp"
#include "moeloom/comm/messages.hpp"

#include <functional>
#include <span>
#include <vector>

namespace moeloom {

/// What is to be summed.
struct StretchOfGradients {
  const Communicator* ranks = nullptr;
  std::span<float> gradients;      // left alone until `done`
  std::span<const Index> offsets;  // [ranks + 1], of what each rank owns
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

 private:
  /// Ranks of a node, and nodes; each rank is a node of its own where nodes are no subtrees.
  struct Nodes {
    explicit Nodes(const Communicator& ranks);

    Index each, count, mine, member;
  };

  Stretch part_of(Index rank) const { return {of_.offsets[at(rank)], of_.offsets[at(rank + 1)]}; }
  std::span<const float> gradients_for(Index rank) const;
  /// The node whose sum is made `turn`th: this rank's own is the last.
  Index node_in(Index turn) const { return (nodes_.mine + 1 + turn) % nodes_.count; }
  /// The rank of this one's number there. It owns what this rank adds up for it, and the other way round.
  Index partner_on(Index node) const { return node * nodes_.each + nodes_.member; }
  Index mate(Index member) const { return nodes_.mine * nodes_.each + member; }
  /// What a member of this node has for the partner in that turn; the first one's place becomes the sum.
  std::span<float> within(Index turn, Index member);
  /// What a node has for this rank.
  std::span<float> across(Index node);
  void exchange_within();
  void add_up_within();

  StretchOfGradients of_;
  Nodes nodes_;
  Stretch mine_;                       // of the gradients
  std::vector<Index> within_offsets_;  // [nodes + 1], by turn
  Matrix memory_;                      // [nodes, each] of within, [nodes] of across
  Messages messages_;                  // first those of this node, by turn
  Index turn_ = 0;                     // nodes that have been passed on to
  Index added_ = 0;                    // of the owned numbers
};

}  // namespace moeloom
