// Gathers and sums of a group that has several ranks on a node: what is equal for the ranks of a node crosses
// a link once.
//
// A stretch that is gathered goes to one rank of each other node, which gives it to the others there.
// Gradients are first added up within each node, and the sums cross. Where the ranks of every node are a
// subtree of tensor/tree_sum.hpp, that is the tree's own order, so no bit changes.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <functional>
#include <span>

namespace moeloom {

struct GroupNodes;

class NodeExchange {
 public:
  /// Of a group that goes by swaps.
  explicit NodeExchange(const Communicator& ranks);

  /// stretch_of(rank): that rank's bytes, filled where it is this rank -> filled everywhere.
  void gather(const std::function<std::span<std::byte>(Index rank)>& stretch_of) const;
  /// As Communicator::reduce_scatter_tree; scratch is used where it is large enough.
  void sum(std::span<const float> grads, std::span<const Index> counts_per_rank, std::span<float> scratch,
           std::span<float> shard) const;

 private:
  /// What this rank has of all stretches to the others of its node, and theirs to it. -> the bytes it sent
  Index pass_on(const std::function<std::span<std::byte>(Index rank)>& stretch_of) const;
  /// The rank of this one's number on `node`.
  Index partner_on(Index node) const;
  /// target: this rank's node's sum of the stretch of partner_on(node).
  void sum_within(Index node, std::span<const float> grads, std::span<const Index> counts_per_rank,
                  std::span<float> scratch, std::span<float> target) const;

  const Communicator* ranks_;
  const GroupNodes* nodes_;
};

}  // namespace moeloom
