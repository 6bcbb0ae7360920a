// What a run is: the batch of a step, what is kept of it and in which format, how ranks exchange, and where
// they lie. Values, the same on every rank; no collective.
//
// What a caller asks (AskedExchange) leaves some of the exchange open; the library decides that when a Model
// or a Training is made.
#pragma once

#include "moeloom/base/index.hpp"
#include "moeloom/job/batch_shape.hpp"
#include "moeloom/job/dispatcher_kind.hpp"
#include "moeloom/job/mesh_shape.hpp"
#include "moeloom/job/optimizer_kind.hpp"
#include "moeloom/job/recompute.hpp"
#include "moeloom/tensor/stored_rows.hpp"

#include <filesystem>
#include <optional>
#include <vector>

namespace moeloom {

/// What is kept of a step, and in which format.
struct Keeping {
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  MomentFormat moments = MomentFormat::kFp32;
  Storage masters = Storage::kFp32;    // weights of large products, embeddings and head; not kF16
  Storage gradients = Storage::kFp32;  // of experts' matrices, kFp32 or kBf16
  Recompute recompute = Recompute::kNone;
  /// Gradients and moments of what is not an expert are held by the ranks that own them alone, and its
  /// weights once a node; false: by every rank. Not with exact sums.
  bool shard_dense = false;
  /// A folder on a disk of the node, where frozen experts in bf16 or F16 lie; empty: in memory.
  std::filesystem::path offload = {};

  bool offloads() const { return !offload.empty(); }
};

/// How rows, sums of gradients and new weights travel: what runs.
struct Exchange {
  DispatcherKind dispatcher = DispatcherKind::kAlltoall;
  CombineMode combine = CombineMode::kExact;
  WireDType wire = WireDType::kFp32;
  Index chunks = 0;             // parts in which rows travel while experts compute; 0: whole, experts wait
  bool overlap_reduce = false;  // sums of gradients travel while backward goes on
  bool overlap_gather = false;  // new weights travel while the next forward goes on
  bool rebalance = false;  // experts get replicas on other ranks, micro-batch by micro-batch, where it pays
  /// For predictions: rows of each expert as far as routing is known, one list [E] for all layers or one for
  /// each sparse layer (or several of each, from several steps). Their ratios count, and the lists' mean.
  /// Empty: even.
  std::vector<std::vector<double>> expert_rows = {};
};

/// What is asked of an exchange; what is none the library chooses, the same on every rank.
struct AskedExchange {
  std::optional<DispatcherKind> dispatcher = {};
  CombineMode combine = CombineMode::kExact;
  WireDType wire = WireDType::kFp32;
  std::optional<Index> chunks = {};  // 0: rows travel whole
  std::optional<bool> overlap_reduce = {};
  std::optional<bool> overlap_gather = {};
  bool rebalance = false;

  /// What is asked, filled up from `known` where it is none; expert_rows are `known`'s.
  Exchange over(const Exchange& known) const;
};

/// Where ranks lie, and what a rank has to compute with. A Model and a Training find it out themselves.
struct Layout {
  MeshShape mesh = {};
  Index ranks_per_node = 1;
  Index ep_per_node = 0;  // ranks of an ep row on each of its nodes; 0: as ranks lie in order
  Index processors_per_node = 1;
  Index threads = 1;          // of a rank
  bool tcp = false;           // what leaves a node goes by TCP alone
  Index pretended_nodes = 0;  // for tests (Communicator::pretend_nodes); 0: the real ones

  /// Ranks of an ep row on each of its nodes, by ep_per_node or else as ranks lie in order: neighbours where
  /// ep varies fastest, else every dp-th.
  Index ep_on_node() const;
};

/// All of that.
struct Job {
  BatchShape batch = {};
  Keeping keeping = {};
  Exchange exchange = {};
  Layout layout = {};

  /// Sequences and tokens of one rank in one micro-batch.
  Index sequences() const { return batch.sequences_per_micro_batch(layout.mesh.world()); }
  Index tokens() const { return sequences() * batch.length; }
};

}  // namespace moeloom
