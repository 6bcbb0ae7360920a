// Who multiplies the rows that a trip brings to this rank's experts: the rank by itself, chunk after chunk as
// they land; it and ranks that hold replicas of its experts; or the ranks of a node together. Made once a
// rank, beside its dispatcher.
#pragma once

#include "moeloom/moe/dispatch/dispatcher.hpp"
#include "moeloom/moe/experts/node_pool.hpp"
#include "moeloom/moe/experts/rebalanced_experts.hpp"

#include <variant>

namespace moeloom {

/// A rank runs its own experts, while rows of the next chunk travel.
class OwnExperts {
 public:
  void refresh(PackedExperts& packed, const GroupedMatmulKernel& kernel, const ExpertShard& shard,
               std::uint64_t version) const {
    packed.refresh(kernel, shard, version);
  }
  void forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip) const;
  void backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip, Write gradients) const;
  PoolCounts counts() const { return {}; }
  RebalanceCounts rebalance_traffic() const { return {}; }
};

/// The ranks of a node run each other's, when all rows have landed. Masters are read where they lie.
class PooledExperts {
 public:
  explicit PooledExperts(std::shared_ptr<NodeMemory> memory) : pool_(std::move(memory)) {}
  void refresh(PackedExperts& /*packed*/, const GroupedMatmulKernel& /*kernel*/, const ExpertShard& /*shard*/,
               std::uint64_t /*version*/) const {}
  void forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip);
  void backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip, Write gradients);
  PoolCounts counts() const { return pool_.counts(); }
  RebalanceCounts rebalance_traffic() const { return {}; }

 private:
  NodePool pool_;
};

/// forward() and backward() stand between a trip's begin() and finish(): they await its chunks, and send back
/// what becomes of them. Collective over ep.
class ExpertRunner {
 public:
  /// Pooled where the weights lie in the dispatcher's memory, with replicas where the dispatcher plans some.
  explicit ExpertRunner(const DispatcherSettings& dispatcher) : way_(make_way(dispatcher)) {}

  /// Makes `packed` what forward() will read of the weights of `version`.
  void refresh(PackedExperts& packed, const GroupedMatmulKernel& kernel, const ExpertShard& shard,
               std::uint64_t version);
  /// trip.rows is pass.saved.rows -> trip.results, which is pass.workspace.output; of a one-way trip only
  /// what backward needs.
  void forward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip);
  /// trip.rows are the gradients of the results -> trip.results, pass.workspace.d_weights; the shard's
  /// gradients are added to, or written.
  void backward(const ExpertPass& pass, Dispatcher& dispatcher, const RoundTrip& trip, Write gradients);
  /// All zeros where every rank runs its own.
  PoolCounts counts() const;
  /// Bytes alone, of replicas' weights and gradients.
  RebalanceCounts rebalance_traffic() const;
  /// RebalancedExperts::sums(); 0 for other ways.
  Index replica_sums() const;

 private:
  using Way = std::variant<OwnExperts, RebalancedExperts, PooledExperts>;
  static Way make_way(const DispatcherSettings& dispatcher);

  Way way_;
};

}  // namespace moeloom
