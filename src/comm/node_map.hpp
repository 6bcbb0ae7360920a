// Which ranks of a communicator share a machine.
#pragma once

#include "moeloom/comm/communicator.hpp"

#include <span>
#include <vector>

namespace moeloom {

struct NodeMap {
  std::vector<Index> node_of;               // [ranks]
  std::vector<Index> member_of;             // [ranks]: its number among the ranks of its node
  std::vector<std::vector<Index>> members;  // [nodes]: their ranks, ascending

  Index nodes() const { return std::ssize(members); }
  bool same_node(Index a, Index b) const { return node_of[at(a)] == node_of[at(b)]; }
  bool shared() const { return nodes() < std::ssize(node_of); }
  /// Ranks of each node, where node n has [n x that, (n + 1) x that) and those are a subtree of
  /// tensor/tree_sum.hpp, so that sums may be made node by node; 0: they may not.
  Index subtree_ranks() const;
  /// The rank that takes what `rank` has for all of `node`, and gives it to the others there: `rank` itself
  /// on its own node.
  Index taker_on(Index node, Index rank) const;
};

/// node_names [ranks]: equal for ranks of one node, anything else but the same. Nodes are numbered in the
/// order in which ranks name them.
NodeMap node_map_of(std::span<const std::int64_t> node_names);

/// By MPI_Comm_split_type(SHARED); or, where `pretended` is not 0, so many nodes (at most one a rank) made of
/// neighbouring ranks, for tests of what happens between nodes on one machine. Collective over `ranks`.
NodeMap find_nodes(const Communicator& ranks, Index pretended = 0);

}  // namespace moeloom
