// Who multiplies the rows that a trip brings: the rank that holds their expert, chunk after chunk as they
// land, or another one that has a replica of it for this micro-batch (moe/rebalance/replica_plan.hpp).
//
//   forward    weights of replicas leave their owners; own experts run meanwhile; then replicas
//   backward   input gradients; then the sums of replicas, which leave for the owners while own gradients are
//              made
//
// Inside a node nothing travels of what lies in its memory: weights are read, and sums written, at the
// owner's.
#pragma once

#include "moe/dispatch/dispatcher.hpp"
#include "moe/experts/experts.hpp"
#include "moe/experts/node_peers.hpp"
#include "moe/rebalance/rebalance_counts.hpp"

namespace moeloom {

/// Made once a rank, beside its dispatcher. forward() and backward() stand between a trip's begin() and
/// finish(): they await its chunks, and send back what becomes of them. Collective over ep.
class ExpertRunner {
 public:
  explicit ExpertRunner(const DispatcherSettings& dispatcher);

  // Bytes of replicas' weights and gradients that this rank sends are added to `counts`.

  /// trip.rows is pass.saved.rows -> trip.results, which is pass.workspace.output; of a one-way trip only
  /// what backward needs.
  void forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip,
               RebalanceCounts& counts);
  /// trip.rows are the gradients of the results -> trip.results, pass.workspace.d_weights; the shard's
  /// gradients are added to, or written.
  void backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip, Write gradients,
                RebalanceCounts& counts);

  /// Floats of the sums of replicas' and split experts' gradients, which all layers share.
  Index replica_sums() const { return sums_.capacity(); }
  /// Bytes of them, at most, of a rank with so many own experts, each with so many trained floats: where each
  /// has a replica that computes a branch of the tree of sums, or integers of exact ones.
  static double sum_bytes(Index own, Index floats, Index ranks, bool exact);

 private:
  NodePeers peers_;
  RowBuffer sums_;
};

}  // namespace moeloom
