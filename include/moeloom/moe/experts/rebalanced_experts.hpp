// Experts of which some have replicas on other ranks for one micro-batch (moe/rebalance/replica_plan.hpp).
//
//   forward    weights of replicas leave their owners; own experts run while they travel; then replicas
//   backward   replicas first, and their gradients leave for the owners; own experts run while those travel
//
// A replica's gradient is the sum of a branch of the tree over source ranks. The owner makes the sums of its
// own branches, and adds all of them along the tree, so that the bits are those of an expert that ran in one
// place.
#pragma once

#include "moeloom/comm/messages.hpp"
#include "moeloom/moe/dispatch/dispatcher.hpp"
#include "moeloom/moe/experts/experts.hpp"
#include "moeloom/moe/experts/pool_board.hpp"

#include <array>

namespace moeloom {

/// Collective over ep, as ExpertRunner, whose functions these are.
class RebalancedExperts {
 public:
  void refresh(PackedExperts& packed, const GroupedMatmulKernel& kernel, const ExpertShard& shard,
               std::uint64_t version) const {
    packed.refresh(kernel, shard, version);
  }
  void forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip);
  void backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip, Write gradients);
  PoolCounts counts() const { return {}; }
  /// Bytes that this rank has sent.
  const RebalanceCounts& rebalance_traffic() const { return traffic_; }
  /// Elements of its sums of branches, which all layers share.
  Index sums() const { return sums_.capacity(); }
  /// Of those, at most: where each of a rank's own experts has a replica that computes a branch of the tree.
  static double sum_bytes(const ExpertShape& own, Index ranks);

 private:
  struct Share;
  struct Branch;

  void send_weights(const ExpertPass& pass, const Share& share, Messages& messages);
  std::span<float> sum_of(const Branch& branch);
  std::vector<Branch> list_branches(const Share& share, bool of_replicas) const;
  void sum_branches(const ExpertPass& pass, const Share& share, Index first_row,
                    std::span<const Branch> branches, ConstMatrixView d_rows);
  void sum_own(const ExpertPass& pass, const Share& share, std::span<const Branch> branches,
               ConstMatrixView d_rows, Write gradients);
  void add_up(const ExpertPass& pass, const Share& share, std::span<const Branch> branches, Write gradients);

  PackedExperts no_faces_;  // of replicas, whose masters alone travel
  Matrix sums_;  // a row a branch: gradients of gate_up [2F, D], of down [D, F] and of their biases
  std::vector<Index> group_rows_;
  std::array<std::vector<MatrixView>, 4> targets_;  // of sums_, in that order
  RebalanceCounts traffic_;
};

}  // namespace moeloom
