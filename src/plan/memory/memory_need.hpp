// What a rank of a training job holds, counted from the structures that hold it, before any of it is there.
//
// Every structure says what it takes beside its fields (bytes_of), rounded as the allocator rounds it; here
// that is added up over layers. What MPI, the program and the system's caches take is not counted.
#pragma once

#include "moe/dispatch/trip_shape.hpp"
#include "moeloom/model/hf/config.hpp"
#include "moeloom/tensor/dtype.hpp"
#include "train/lasting_memory.hpp"

#include <map>

namespace moeloom {

/// Bytes of one rank by what they are for: beside what lasts, what a step needs.
struct MemoryNeed : LastingMemory {
  double packed = 0;       // both faces of the experts
  double activations = 0;  // kept from forward to backward, a set a layer
  double buffers = 0;      // one set for all layers, the exchange and the reduction
  double replicas = 0;     // of experts that other ranks hold, where rows are rebalanced
  double save_copy = 0;    // of what checkpoints are written from while steps go on
  double data = 0;         // tables of the examples, and what is mapped of their files; known where it runs
  double program = 0;      // what the process held before; known where it runs

  double total() const {
    return lasting() + packed + activations + buffers + replicas + save_copy + data + program;
  }
};

/// Both packed faces: a weight's bytes twice, bf16 once.
double packed_bytes(const std::vector<ParameterSpec>& specs, DType element);

/// What every layer keeps from its forward to its backward.
double activation_bytes(const ModelConfig& config, const Job& job, LayerRows rows);

/// What all layers share: the workspaces, what backward makes again, the residual stream, a stretch of
/// logits, rows under way and the scratch of the gradient reduction.
double buffer_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                    LayerRows rows);

/// What of one expert goes to a rank that holds a replica of it, and what comes back.
struct ReplicaTraffic {
  double weights = 0;          // bytes, as they are stored, between nodes
  double weights_on_node = 0;  // bytes of those that the other rank cannot read where they lie
  Index trained = 0;           // numbers, whose gradients come back in fp32, however they are kept
};
/// By layer.
std::map<Index, ReplicaTraffic> replica_traffic(const std::vector<ParameterSpec>& specs, const Job& job);
/// Ranks of a node read each other's experts, and add gradients up, where they lie.
bool experts_in_node_memory(const Job& job);

/// The most that replicas take: of each layer the tables that place them and, from forward to backward, as
/// many experts' weights as a rank has of its own, unless all are read in a node's memory; and, once, the
/// sums of branches of their gradients (ExpertRunner).
double replica_bytes(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job);

/// The copy that the rank that writes most makes for a save in the background: the dense weights, its experts
/// and its moments; with an adapter its factors and their moments alone.
double save_copy_bytes(const std::vector<ParameterSpec>& specs, const Job& job);

/// All of it. `packs`: the experts' products read packed faces of `element`.
MemoryNeed training_memory(const ModelConfig& config, const std::vector<ParameterSpec>& specs, const Job& job,
                           LayerRows rows, bool packs, DType element = DType::kF32);

}  // namespace moeloom
