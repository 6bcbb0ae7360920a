// The ranks of ep that share this one's memory.
#pragma once

#include "comm/node_map.hpp"
#include "comm/node_memory.hpp"

#include <memory>

namespace moeloom {

struct NodePeers {
  std::shared_ptr<NodeMemory> memory = nullptr;  // null: none does
  NodeMap nodes = {};                            // of the ranks of ep

  bool share(Index a, Index b) const { return memory != nullptr && nodes.same_node(a, b); }
  /// A place in the memory of a rank of ep that is one of them.
  std::byte* address(Index rank, Index offset) const {
    return memory->address(static_cast<int>(nodes.member_of[at(rank)]), offset);
  }
};

}  // namespace moeloom
