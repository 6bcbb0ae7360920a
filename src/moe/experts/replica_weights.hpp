// Weights of replicas: read where they lie by a rank that shares their owner's memory, and else sent.
//
// An owner tells a rank of its node where the arrays of an expert lie. What does not lie in the node's
// memory, as on a disk, follows as a message.
#pragma once

#include "base/interlude.hpp"
#include "comm/messages.hpp"
#include "moe/experts/node_peers.hpp"
#include "moe/rebalance/rebalance_counts.hpp"

#include <deque>
#include <utility>

#include "experts/replica_share.hpp"

namespace moeloom {

/// Of one forward. Collective over ep.
class ReplicaWeights {
 public:
  /// saved.replicas of the pass are what they come to.
  ReplicaWeights(const ReplicaShare& share, const NodePeers& peers, const Communicator& ep,
                 RebalanceCounts& traffic);

  /// What others do not read where it lies leaves.
  void send();
  /// Those of share.replicas()[i] are there.
  const ExpertShard& await(Index i);
  /// What was sent has left.
  void finish() { messages_.serve_until_finished(); }
  Interlude progress() { return Interlude::calling<&Messages::progress>(messages_); }

 private:
  /// All places before any array, as they are received.
  void tell_places();
  void tell_places_of(Index expert, Index to);
  Index receive_missing(Index i);

  const ReplicaShare& share_;
  const NodePeers& peers_;
  RebalanceCounts& traffic_;
  std::vector<std::span<const std::byte>> arrays_;  // shapes of an expert's
  std::vector<std::vector<Index>> places_;          // [S] that owners tell
  std::deque<std::vector<Index>> told_;             // that others read
  std::vector<std::pair<int, std::span<const std::byte>>> to_send_;
  std::vector<Index> firsts_;  // [S] the first receive of each
  Index receives_ = 0;
  Messages messages_;  // ends before what it reads and writes
};

}  // namespace moeloom
