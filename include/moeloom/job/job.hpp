// What a run is: the batch of a step, what is kept of it and in which format, how ranks exchange, and where
// they lie. Values that every room may read; a new switch of a step is a field here.
//
// A job is not changed once it was read. What is asked leaves the exchange open; decide() returns another
// job, which is the settled one.
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
  Storage masters = Storage::kFp32;    // of matrices
  Storage gradients = Storage::kFp32;  // of matrices of experts, kFp32 or kBf16
  Recompute recompute = Recompute::kNone;
  /// Dense gradients and moments are held by the ranks that own them, and dense weights once a node.
  bool shard_dense = false;
  /// A folder on a disk of the node, where frozen experts in bf16 or F16 lie; empty: in memory.
  std::filesystem::path offload = {};

  bool offloads() const { return !offload.empty(); }
};

/// How rows, sums and weights travel.
struct Exchange {
  DispatcherKind dispatcher = DispatcherKind::kAlltoall;
  CombineMode combine = CombineMode::kExact;
  WireDType wire = WireDType::kFp32;
  Index chunks = 0;             // in which rows travel while experts compute; 0: whole, experts wait for all
  bool overlap_reduce = false;  // sums of gradients travel while backward goes on
  bool overlap_gather = false;  // new weights travel while the next forward goes on
  bool rebalance = false;  // experts get replicas on other ranks, micro-batch by micro-batch, where it pays
  /// Rows of each expert as far as routing is known, a list for each sparse layer (of several steps, if so
  /// many are known), or one for all: their ratios count, and the lists' mean. Empty: even.
  std::vector<std::vector<double>> expert_rows = {};
};

/// What is asked of an exchange; of what is none, decide() chooses.
struct AskedExchange {
  std::optional<DispatcherKind> dispatcher = {};
  CombineMode combine = CombineMode::kExact;
  WireDType wire = WireDType::kFp32;
  std::optional<Index> chunks = {};  // 0: rows travel whole
  std::optional<bool> overlap_reduce = {};
  std::optional<bool> overlap_gather = {};
  bool rebalance = false;

  /// What is asked; `known` says what is left open, and the rows of experts.
  Exchange over(const Exchange& known) const;
};

/// Where ranks lie, and what a rank has to compute with.
struct Layout {
  MeshShape mesh = {};
  Index ranks_per_node = 1;
  Index ep_per_node = 0;  // ranks of an ep row on each of its nodes; 0: as ranks lie in order
  Index processors_per_node = 1;
  Index threads = 1;          // of a rank
  bool tcp = false;           // what leaves a node goes by TCP alone (comm/transport.hpp)
  Index pretended_nodes = 0;  // find_nodes()'s

  /// Ranks of an ep row on each of its nodes: neighbours where ep varies fastest, else one in dp of a node's.
  Index ep_on_node() const;
};

struct Job {
  BatchShape batch = {};
  Keeping keeping = {};
  Exchange exchange = {};
  Layout layout = {};

  /// Of a rank and micro-batch.
  Index sequences() const { return batch.sequences_per_micro_batch(layout.mesh.world()); }
  Index tokens() const { return sequences() * batch.length; }
};

}  // namespace moeloom
