// Gradients of experts that have replicas: a rank sums those of its rows, a branch of the tree over source
// ranks, and the owner adds all branches up along the tree, so that the bits are those of an expert that ran
// in one place. Exact sums need no tree: all rows of a replica come to one sum of integers, leaf by leaf.
//
// A rank that shares the owner's memory writes its sums where the owner reads them; others send theirs.
#pragma once

#include "base/interlude.hpp"
#include "comm/messages.hpp"
#include "moe/experts/node_peers.hpp"
#include "moe/rebalance/rebalance_counts.hpp"

#include <deque>

#include "experts/replica_share.hpp"

namespace moeloom {

/// Of one backward, after backward_chunk() of all rows that a call is about. Collective over ep.
class BranchSums {
 public:
  /// sums: memory that backward after backward uses, in that of the node if peers have one.
  BranchSums(const ReplicaShare& share, const NodePeers& peers, const Communicator& ep, RowBuffer& sums,
             RebalanceCounts& traffic);

  /// The branches that this rank has of replicas are summed, and leave.
  void sum_replicas(ConstMatrixView d_rows);
  /// Gradients of own experts: of those without replicas into the shard, of others this rank's branches.
  void sum_own(const ExpertChunk& chunk, ConstMatrixView d_rows, Write mode);
  /// Waits for the branches of others, and adds them up in the shard.
  void finish(Write mode);
  Interlude progress() { return Interlude::calling<&Messages::progress>(messages_); }

  /// Of `sums`, at most, of a rank with so many own experts, each with so many trained floats.
  static double bytes_of(Index own, Index floats, Index ranks, bool exact);

 private:
  struct Branch {
    Index expert = 0;  // of all
    SourceBranch sources = {};
    int peer = 0;            // of an own expert's the rank that sums it, of a replica's the owner
    Index row = 0;           // of the sums
    Index* place = nullptr;  // where it is written in the owner's memory; null: it is sent
    Index receive = 0;       // of that place
  };
  void list_branches();
  std::vector<SourceBranch> branches_of(Index expert) const;
  bool near(Index rank) const { return peers_.share(share_.rank(), rank); }
  /// `expert`: a shard of the branch's.
  void sum(const ExpertShard& expert, const Branch& branch, Index first_row, float* into,
           ConstMatrixView d_rows);
  /// The same of share.replicas()[i], as integers.
  void sum_leaves(Index i, float* into, ConstMatrixView d_rows);
  std::span<float> sum_of(const Branch& branch) { return {sums_.view().row(branch.row), at(floats_)}; }
  static std::span<std::byte> bytes_of_place(const Branch& branch) {
    return std::as_writable_bytes(std::span(branch.place, 1));
  }

  const ReplicaShare& share_;
  const NodePeers& peers_;
  RowBuffer& sums_;
  RebalanceCounts& traffic_;
  ExactSums* exact_;  // null: sums follow the tree
  Index trained_;     // floats of an expert
  Index floats_;      // of a sum, which may be integers of twice the size
  Index receives_ = 0;
  std::vector<Branch> of_own_;       // of experts with replicas: all
  std::vector<Branch> of_replicas_;  // those of this rank
  std::deque<Index> places_, done_;  // messages between ranks that share memory
  std::vector<Index> rows_per_source_;
  Messages messages_;  // ends before what it reads and writes
};

}  // namespace moeloom
