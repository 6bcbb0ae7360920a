// The dense weights of a model, once for the ranks of a node, which all read them in place.
//
// Each rank owns, and updates, a part of them (ShardedOptimizer). What the ranks of other nodes own comes in
// messages: a stretch goes to one rank of each node, which writes it for all.
#pragma once

#include "comm/node_map.hpp"
#include "comm/node_memory.hpp"
#include "moeloom/comm/communicator.hpp"

#include <memory>
#include <span>

namespace moeloom {

class NodeWeights {
 public:
  /// floats: of ParameterStore::dense_floats, the same on every rank. They are zeros. `pretended` nodes as in
  /// find_nodes(). Collective over `world`. Throws AgreedError as NodeMemory does.
  NodeWeights(const Communicator& world, Index floats, Index pretended = 0);

  std::span<float> values() const { return values_; }
  const NodeMap& nodes() const { return nodes_; }
  /// Whether this rank fills the parameter with that index in the store, for all ranks of its node.
  bool is_mine(std::size_t parameter) const { return parameter % at(node_.size()) == at(node_.rank()); }
  /// This rank's share of what the node holds.
  Index bytes() const { return std::ssize(values_) * Index{sizeof(float)} / node_.size(); }
  /// Collective over the node: what its ranks wrote before is there for all after.
  void meet() const { memory_->meet(); }

 private:
  NodeMap nodes_;
  Communicator node_;
  std::shared_ptr<NodeMemory> memory_;
  NodeBlock block_;  // of the first rank of the node
  std::span<float> values_;
};

}  // namespace moeloom
