// What a placement costs a layer and micro-batch, in whole nanoseconds, so that every rank adds up the same.
//
// A pass ends with its slowest rank. Of rank r, with o rows of its own experts, p rows of replicas, w(r) the
// nanoseconds in which replicas' weights leave or reach it, g(r) those of gradients:
//
//   rows       4 max over r of max(out(r), in(r)): there and back, in both passes
//   forward    max over r of  max(o f, w(r)) + p f          own experts run while weights travel
//   backward   max over r of  (o + p) f + p f + max(o f, g(r))
//
// in backward the gradients of rows, then the sums of replicas, which travel beside those of own experts.
//
// f: a third of a row's products, which are as long in backward twice.
#pragma once

#include "moe/rebalance/replica_placement.hpp"

namespace moeloom {

/// Of one direction between two ranks.
struct CrossingNanoseconds {
  std::int64_t row = 0;
  std::int64_t weights = 0;    // of an expert
  std::int64_t gradients = 0;  // a sum of all that is trained of it
};

/// The same on all ranks, made of constants and what was given for the network; never measured.
struct RebalanceRates {
  std::int64_t row_products = 0;  // forward and backward, nanoseconds
  CrossingNanoseconds on_node = {};
  CrossingNanoseconds between_nodes = {};
};

struct PlacementCost {
  std::int64_t rows = 0, forward = 0, backward = 0;  // nanoseconds
  std::int64_t even = 0;                             // the same rows and products, had every rank as many

  std::int64_t total() const { return rows + forward + backward; }
};

/// node_of [ep]: the node of each rank; empty: all are on one.
PlacementCost cost_of(const ReplicaPlacement& placement, const RebalanceRates& rates,
                      std::span<const Index> node_of);

}  // namespace moeloom
