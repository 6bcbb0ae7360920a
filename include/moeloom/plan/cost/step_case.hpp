// A training job as the cost model sees it: its mesh, its nodes, and what a rank has of a step.
#pragma once

#include "moeloom/comm/mesh.hpp"
#include "moeloom/model/hf/config.hpp"
#include "moeloom/moe/recompute.hpp"
#include "moeloom/plan/cost/exchange_cost.hpp"
#include "moeloom/tensor/stored_rows.hpp"
#include "moeloom/train/moments.hpp"
#include "moeloom/train/optimizer_kind.hpp"

#include <vector>

namespace moeloom {

struct StepCase {
  MeshShape mesh = {};
  Index ranks_per_node = 1;
  Index ep_per_node = 0;  // ranks of an ep row on each of its nodes; 0: as ranks lie in order
  Index processors_per_node = 1;
  Index threads = 1;  // of a rank
  bool tcp = false;   // what leaves a node goes by TCP alone (comm/exchange_way.hpp)
  DispatcherKind kind = DispatcherKind::kAlltoall;
  CombineMode combine = CombineMode::kExact;
  WireDType wire = WireDType::kFp32;
  Index chunks = 0;  // in which rows travel while experts compute; 0: whole, before and after
  Index tokens = 0;  // of a rank and micro-batch
  Index sequence_length = 0;
  Index micro_batches = 1;  // of a step
  Index exact = 0;          // sequences of a leaf of exact sums; 0: sums follow the tree of ranks
  Recompute recompute = Recompute::kNone;
  MomentFormat moments = MomentFormat::kFp32;
  Storage masters = Storage::kFp32;
  Storage gradients = Storage::kFp32;  // of experts
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  bool overlap_reduce = false;  // sums of gradients travel while backward goes on
  bool overlap_gather = false;  // new weights travel while the next forward goes on
  bool shard_dense = false;     // TrainingStateSettings
  bool offload = false;         // frozen experts in bf16 or F16 lie on a disk
  // Rows of each expert, a list for each sparse layer (of several steps, if so many are known), or one for
  // all: their ratios count, and the lists' mean. Empty: even.
  std::vector<std::vector<double>> expert_rows = {};
};

/// max(1, ranks a node * threads / processors a node).
double oversubscription(const StepCase& step);

/// Ranks of an ep row on each of its nodes: neighbours where ep varies fastest, else one in dp of a node's.
Index ep_on_node(const StepCase& step);
ExchangeCase exchange_case(const ModelConfig& config, const StepCase& step);

}  // namespace moeloom
